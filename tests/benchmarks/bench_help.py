"""Help of every command against that of a Typer application without options: wanted at most 2x.

    python -m tests.benchmarks.bench_help [--rounds 9]

Both take turns as processes of their own; the ratio is that of the shortest times.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EMPTY = """
import typer
app = typer.Typer()
@app.command()
def one(): pass
@app.command()
def two(): pass
app()
"""
STAGES = ["tokenize", "train", "build-datastore", "build-index", "precompute-neighbors", "pack-batches", "evaluate"]
COMMANDS = ["", *STAGES, "run", "artifacts", "presets"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.py")
        empty.write_text(EMPTY)
        for command in COMMANDS:
            print(_compared(command, empty, rounds))


def _compared(command: str, empty: Path, rounds: int) -> str:
    ours = ["-m", "memlm_cli", *command.split(), "--help"]
    theirs = [str(empty), *(["one"] if command else []), "--help"]
    pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]
    mine, least = (min(times) for times in zip(*pairs, strict=True))
    return f"memlm {command} --help: {mine:.3f} s, empty {least:.3f} s: {mine / least:.2f}x"


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
