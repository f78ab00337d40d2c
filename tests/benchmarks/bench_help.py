"""How long memlm takes to begin: help, a command whose artifact is there, `evaluate` up to its
first shard.

    python -m tests.benchmarks.bench_help [--rounds 9] [--commands train evaluate]

Beside them the floors: an empty Python process, an empty Typer application, PyTorch imported and
nothing else. All are processes of their own, in turn, on a store of a few kilobytes; figures are
medians of the clock and of processor time. Wanted of help and of the cached command: at most 1.5
times the empty application; of the first shard: 3 seconds, with the model, index and inputs open.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.timing import Seconds, processes_in_turn

EMPTY = """
import typer
app = typer.Typer()
@app.command()
def one(): pass
@app.command()
def two(): pass
app()
"""
FIRST_SHARD = """
import os, sys
from memlm_cli.app import main
from stages.evaluation.work import EvaluateWork
EvaluateWork.run_shard = lambda *_: os._exit(0)
sys.exit(main(sys.argv[1:]))
"""
STAGES = [
    "tokenize",
    "train",
    "build-datastore",
    "build-index",
    "precompute-neighbors",
    "pack-batches",
    "evaluate",
]
COMMANDS = [*STAGES, "run", "artifacts", "presets"]
TINY = [
    "--set",
    "model.layers=1",
    "--set",
    "model.width=8",
    "--set",
    "model.heads=2",
    "--set",
    "segment_length=8",
]
TRAINING = [*TINY, "--set", "batch_tokens=16", "--steps", "2"]


def memlm(*words: str) -> list[str]:
    return [sys.executable, "-m", "memlm_cli", *words]


def small_store(folder: Path) -> str:
    """Make one in a folder, up to an index; returns the datastore that it is of."""
    text = folder / "text.txt"
    text.write_text("".join(f"one two {number % 7} three {number % 11}\n" for number in range(300)))
    reference = ""
    for words in (
        ["tokenize", "--train", text.name, "--valid", text.name],
        ["train", *TRAINING],
        ["build-datastore"],
    ):
        command = memlm(*words[:1], *([reference] if reference else []), *words[1:])
        made = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        reference = made.stdout.split()[-1]
    return reference


def measure(rounds: int, commands: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty.py").write_text(EMPTY)
        (folder / "first_shard.py").write_text(FIRST_SHARD)
        empty = [sys.executable, "empty.py"]
        cached = memlm("build-index", small_store(folder))
        index = subprocess.run(
            cached, cwd=folder, check=True, capture_output=True, text=True
        ).stdout.split()[-1]
        shard = [
            sys.executable,
            "first_shard.py",
            "evaluate",
            index,
            "--split",
            "valid",
            "--exclude",
            "self",
        ]
        timed = {
            "python": [sys.executable, "-c", "pass"],
            "torch": [sys.executable, "-c", "import torch"],
            "empty": [*empty, "one"],
            "empty --help": [*empty, "--help"],
            "empty COMMAND --help": [*empty, "one", "--help"],
            "cached": cached,
            "first shard": shard,
            "--help": memlm("--help"),
            **{f"{command} --help": memlm(command, "--help") for command in commands},
        }
        taken = processes_in_turn(timed, rounds, folder)
    return {name: row(taken, name) for name in taken}


def row(taken: dict[str, Seconds], name: str) -> dict[str, float]:
    """Seconds, and of what memlm does the ratio to an empty application that does the same."""
    own = taken[name]
    seconds = {"seconds": round(own.wall, 3), "cpu": round(own.cpu, 3)}
    floors = {"cached": "empty", "--help": "empty --help"}
    floor = floors.get(name) or ("empty COMMAND --help" if name.endswith("--help") else None)
    if floor is None or name.startswith("empty"):
        return seconds
    least = taken[floor]
    return {
        **seconds,
        "ratio": round(own.wall / least.wall, 2),
        "cpu_ratio": round(own.cpu / least.cpu, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--commands", nargs="*", default=COMMANDS, help="whose own help is timed")
    given = parser.parse_args()
    print(json.dumps(measure(given.rounds, given.commands), indent=1))


if __name__ == "__main__":
    main()
