"""Throughput of `tokenize` for words against the plainest loop, and its memory against a corpus ten times the size.

    python -m tests.benchmarks.bench_tokenize [--megabytes 10] [--rounds 3]

The plain loop holds the whole text, counts its words, looks each up and writes one array: no documents,
paragraphs, hashes, checksums or resuming. Each run is a process of its own on generated text, in turn, and the fastest
of some rounds counts; time is that of the processor, all threads together, so that a busy machine changes little. With
two workers it is that of the first process and half that of the workers: what two idle cores need at least.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np


def plain(source: Path, folder: Path) -> None:
    lines = source.read_text(encoding="utf-8").split("\n")[:-1]
    counts = Counter(word for line in lines for word in [*line.split(), "<eos>"])
    vocabulary = {word: id for id, (word, _) in enumerate(counts.most_common())}
    ids = [vocabulary[word] for line in lines for word in [*line.split(), "<eos>"]]
    np.save(folder / "ids.npy", np.array(ids, np.uint16))


def ours(source: Path, folder: Path, workers: int = 1) -> None:
    from stages.artifacts.make import make
    from stages.artifacts.stage import Execution
    from stages.artifacts.store import Store
    from stages.tokenize import Tokenize, TokenizeConfig

    config = TokenizeConfig(tokenizer="word", min_count=1)
    make(Tokenize(), config, {"train": [str(source)]}, Store(folder), Execution(workers=workers))


WAYS = {"plain": plain, "ours": ours, "two workers": partial(ours, workers=2)}


def write_text(path: Path, megabytes: float) -> None:
    """Lines of 50 words drawn from 20,000 with Zipf's frequencies."""
    random = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, 20_001)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            words = random.choice(20_000, (1000, 50), p=frequencies / frequencies.sum())
            file.writelines(" ".join(f"w{word}" for word in line) + "\n" for line in words)


def measure(what: str, source: Path) -> tuple[float, float]:
    """(MB of text a second of processor time, peak MB of memory) of one way, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_tokenize", "--one", what, str(source)]
    seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return source.stat().st_size / 1e6 / seconds, peak


def measure_here(what: str, source: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        WAYS[what](source, Path(folder))
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = time.process_time() - began + (children.ru_utime + children.ru_stime) / 2
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(line.split()[1] for line in status.split("\n") if line.startswith("VmHWM"))
    print(json.dumps([seconds, int(peak) / 1024]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure_here(arguments.one[0], Path(arguments.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.txt"), Path(folder, "large.txt")
        write_text(small, arguments.megabytes)
        large.write_bytes(small.read_bytes() * 10)
        tasks = {f"{way} {text.stem}": (way, text) for text in (small, large) for way in WAYS}
        rounds = [{name: measure(*task) for name, task in tasks.items()} for _ in range(arguments.rounds)]
    results = {name: (max(r[name][0] for r in rounds), min(r[name][1] for r in rounds)) for name in tasks}
    for name, (speed, peak) in results.items():
        print(f"{name:18} {speed:6.1f} MB/s of CPU  {peak:7.0f} MB peak")
    print(f"speed, ours / plain: {results['ours large'][0] / results['plain large'][0]:.2f}")
    print(f"speed, two workers / plain: {results['two workers large'][0] / results['plain large'][0]:.2f}")
    print(f"memory, ten times the text: {results['ours large'][1] / results['ours small'][1]:.3f}")


if __name__ == "__main__":
    main()
