"""The benchmarks of docs/results/speed.md, one after the other, on a machine where nothing else
runs.

    python -m tests.benchmarks.one_run RESULTS --store STORE --index INDEX [--only bench_help \\
        bench_cache]

STORE is one in which `memlm run quickstart` has run, INDEX its index. Each script is a process of
its own; what it prints goes to RESULTS/NAME.txt, behind a line that tells the command, the
machine's load when it began, and the seconds that it took: where the load is above what one script
makes, these are no figures of a quiet machine. First comes what the machine can do at all
(`bench_machine`).
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

SHAPE = ["--layers", "8", "--width", "128", "--heads", "8"]
KEYS = ["--store", "{store}", "--index", "{index}"]
RUNS: dict[str, tuple[str, list[str]]] = {
    "bench_machine": ("", []),
    "bench_help": ("", ["--commands", "train", "evaluate"]),
    "bench_training": ("", []),
    "bench_training-8x128": ("", SHAPE),
    "bench_training-8x128-bf16": ("", [*SHAPE, "--precision", "bf16"]),
    "bench_steps": ("", ["--rounds", "5"]),
    "bench_datastore": ("", ["--tokens", "262144"]),
    "bench_evaluation": ("", []),
    "bench_cache": ("", ["--tokens", "65536"]),
    "bench_lists": ("", KEYS),
    "bench_evaluate_search": ("", KEYS),
    "bench_build_index": ("", KEYS),
    "bench_tokenize": ("", ["--megabytes", "6", "--rounds", "2"]),
    "bench_search": ("", ["--profile"]),
    "bench_compressed": ("", KEYS),
}
"""By the name of its results the module of each and what it is given; where no module stands, it is
the script that the name begins with."""


def run(name: str, results: Path, places: dict[str, str]) -> None:
    """Run one of them; its output is kept even if it fails."""
    module, given = RUNS[name]
    module = module or f"tests.benchmarks.{name.partition('-')[0]}"
    command = ["-m", module, *(part.format(**places) for part in given)]
    load, began = os.getloadavg()[0], time.perf_counter()
    ended = subprocess.run(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    took = time.perf_counter() - began
    heading = f"# python {' '.join(command)} (load before {load:.2f}, {took:.0f} s, exit code {ended.returncode})\n"
    (results / f"{name}.txt").write_text(heading + ended.stdout)
    print(heading, end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--store", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS), metavar="NAME")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        run(name, arguments.results, {"store": arguments.store, "index": arguments.index})


if __name__ == "__main__":
    main()
