"""How long a store of many artifacts takes to list, draw and clear: python -m tests.benchmarks.bench_store.

Makes a store of so many named artifacts (10,000 by default), in chains of five kinds, and times the commands on it in
processes of their own. Nothing here is a ratio: the goal is two seconds each, with the command line's own start.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("tokens", "model", "datastore", "index", "report")
COMMANDS = {
    "list": ("artifacts", "list"),
    "graph": ("artifacts", "graph"),
    "gc": ("artifacts", "gc", "--dry-run", "--unnamed"),
}


def fill(root: Path, artifacts: int) -> None:
    """Manifests and names of artifacts without files."""
    for number in range(artifacts):
        chain, place = divmod(number, len(KINDS))
        kind, id = KINDS[place], f"{chain:012x}"
        above = {"source": {"kind": KINDS[place - 1], "id": id, "digest": ""}} if place else {}
        manifest = {
            **{"format_version": 2 if kind == "report" else 1, "kind": kind, "id": id, "config": {}},
            **{"inputs": above, "files": {}, "metrics": {}, "producer": {}},
            **{"created": f"2026-01-01T00:00:{number % 60:02}+00:00", "seconds": 1.0},
        }
        folder = root / kind / id
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        names = root / "names" / kind
        names.mkdir(parents=True, exist_ok=True)
        (names / f"name-{chain}").write_text(id + "\n")


def main(artifacts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), artifacts)
        for name, words in COMMANDS.items():
            started = time.perf_counter()
            command = [sys.executable, "-m", "memlm_cli", *words, "--store", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            print(f"{name}: {time.perf_counter() - started:.2f} s with {artifacts:,} artifacts", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
