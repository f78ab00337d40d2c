"""Help against that of a Typer application without options: at most twice as long.

pytest -s tests/benchmarks/bench_help.py
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

EMPTY = """
import typer
app = typer.Typer()
@app.command()
def one(): pass
@app.command()
def two(): pass
app()
"""
ROUNDS = 9
COMMANDS = ["tokenize", "train", "build-datastore", "build-index", "precompute-neighbors", "evaluate"]


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


@pytest.mark.parametrize("command", ["", *COMMANDS, "run", "artifacts", "presets"])
def test_help_takes_at_most_twice_as_long_as_that_of_an_empty_application(command: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text(EMPTY)
    ours = ["-m", "memlm_cli", *command.split(), "--help"]
    theirs = [str(empty), *(["one"] if command else []), "--help"]
    rounds = [(_seconds(ours), _seconds(theirs)) for _ in range(ROUNDS)]
    mine, empties = (min(times) for times in zip(*rounds, strict=True))
    print(f"memlm {command or '(none)'} --help: {mine:.3f} s, empty {empties:.3f} s: {mine / empties:.2f}x")
    assert mine <= 2 * empties
