"""How long a store of many artifacts takes to list, draw and clear: python -m
tests.benchmarks.bench_store.

Makes a store of so many named artifacts (10,000 by default), in chains of five kinds, and times the
commands on it in processes of their own: the first that reads all manifests, then each, and a
command whose artifact is there. The goal is two seconds each, with the command line's own start; on
a shared machine the processor's time tells.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stages.artifacts.checksums import file_entry
from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import InputRecord, Manifest

CHAIN = ("tokens", "model", "datastore", "index", "report")
FILES = 8
"""Files that a manifest lists."""
TOKENIZE = ("tokenize", "--train", "text.txt")
COMMANDS = {
    "list, first": ("artifacts", "list"),
    "list": ("artifacts", "list"),
    "graph": ("artifacts", "graph"),
    "gc": ("artifacts", "gc", "--dry-run", "--unnamed"),
    "cached": TOKENIZE,
}


def fill(root: Path, artifacts: int) -> None:
    """Manifests and names of so many artifacts, as large as real ones, whose files are not there."""
    file = root / "content"
    root.mkdir(parents=True, exist_ok=True)
    file.write_text("of no file in particular")
    entry = file_entry(file)
    for number in range(artifacts):
        chain, place = divmod(number, len(CHAIN))
        kind, id = CHAIN[place], f"{chain:012x}"
        above = {"source": InputRecord(kind=CHAIN[place - 1], id=id, digest="")} if place else {}
        manifest = Manifest(
            **{
                "format_version": KINDS[kind].format_version,
                "kind": kind,
                "id": id,
                "inputs": above,
            },
            **{
                "config": {f"setting_{n}": n for n in range(20)},
                "metrics": {f"metric_{n}": n / 7 for n in range(40)},
            },
            **{
                "files": {f"array.zarr/c/{n}": entry for n in range(FILES)},
                "producer": {"memlm": "0"},
            },
            **{"stage": KINDS[kind].command, "outside_files": []},
            **{"created": f"2026-01-01T00:00:{number % 60:02}+00:00", "seconds": 1.0},
        )
        folder = root / kind / id
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(manifest.sealed().dumps())
        names = root / "names" / kind
        names.mkdir(parents=True, exist_ok=True)
        (names / f"name-{chain}").write_text(id + "\n")


def main(artifacts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text("a few words\n" * 9)
        _memlm(folder, TOKENIZE)
        fill(Path(folder, "store"), artifacts)
        time.sleep(3)  # so that manifests are old enough to be remembered
        for name, words in COMMANDS.items():
            started, before = time.perf_counter(), os.times()
            _memlm(folder, words)
            wall, after = time.perf_counter() - started, os.times()
            used = sum(after[2:4]) - sum(before[2:4])
            print(
                f"{name}: {wall:.2f} s, {used:.2f} s of the processor, {artifacts:,} artifacts",
                flush=True,
            )


def _memlm(folder: str, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "memlm_cli", *words, "--store", "store"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
