"""Throughput of `tokenize` beside a peer and the floor, and its memory against a text ten times the
size.

    python -m tests.benchmarks.bench_tokenize [--tokenizer word|bpe] [--text FILE | --megabytes \\
        10] [--rounds 3]

The floor reads the text and cuts its lines at white space, and keeps nothing. The peer of words is
the plainest loop:
it holds the whole text, counts its words, looks each up and writes one array. That of BPE is what
Hugging Face's tokenizers makes of the lines with the same vocabulary, one thread, into one array;
the vocabulary, of 16,000 types, is made before, and given to both. Neither has documents,
paragraphs, hashes, checksums or resuming. Each run is a process of its own, on a file or on
generated text and ten times that, in turn; figures are medians, by the clock and in processor time,
all threads together, which a busy machine changes little. With two workers processor time is that
of the first process and half that of the workers: what two idle cores need at least.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TYPES = 16_000
LINES = 1_000
"""That the library is handed at a time."""


class Run(NamedTuple):
    """Of one way on one text: MB a second by the clock and of processor time, and the most MB of
    memory.
    """

    wall: float
    cpu: float
    peak: float


def floor(source: Path, folder: Path, vocabulary: Path) -> None:
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            line.split()


def plain(source: Path, folder: Path, vocabulary: Path | None = None) -> None:
    lines = source.read_text(encoding="utf-8").split("\n")[:-1]
    counts = Counter(word for line in lines for word in [*line.split(), "<eos>"])
    ids_of = {word: id for id, (word, _) in enumerate(counts.most_common())}
    ids = [ids_of[word] for line in lines for word in [*line.split(), "<eos>"]]
    np.save(folder / "ids.npy", np.array(ids, np.uint16))


def library(source: Path, folder: Path, vocabulary: Path) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer, parts = Tokenizer.from_file(str(vocabulary)), []
    with source.open(encoding="utf-8") as lines:
        while batch := list(islice(lines, LINES)):
            encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            parts += [np.array(encoding.ids, np.uint16) for encoding in encodings]
    np.save(folder / "ids.npy", np.concatenate(parts))


def ours(
    source: Path, folder: Path, vocabulary: Path | None, workers: int = 1, **settings: Any
) -> Path:
    """Returns: the folder of the artifact."""
    from stages.artifacts.make import make
    from stages.artifacts.stage import Execution
    from stages.artifacts.store import Store
    from stages.tokenize import Tokenize, TokenizeConfig

    files = {"train": [str(source)]} | ({"tokenizer": str(vocabulary)} if vocabulary else {})
    return make(
        Tokenize(), TokenizeConfig(**settings), files, Store(folder), Execution(workers=workers)
    ).artifact.path


def words(source: Path, folder: Path, vocabulary: Path, workers: int = 1) -> None:
    ours(source, folder, None, workers, tokenizer="word", min_count=1)


def bpe(source: Path, folder: Path, vocabulary: Path, workers: int = 1) -> None:
    ours(source, folder, vocabulary, workers, tokenizer="given")


PEERS = {"word": plain, "bpe": library}
OURS = {"word": words, "bpe": bpe}
WAYS = ("floor", "peer", "ours", "two workers")


def write_text(path: Path, megabytes: float) -> None:
    """Lines of 50 words drawn from 20,000 with Zipf's frequencies."""
    random = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, 20_001)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            drawn = random.choice(20_000, (1000, 50), p=frequencies / frequencies.sum())
            file.writelines(" ".join(f"w{word}" for word in line) + "\n" for line in drawn)


def measure(way: str, tokenizer: str, source: Path, vocabulary: Path) -> Run:
    """One way, in a process of its own."""
    words = ["--one", way, str(source), str(vocabulary), "--tokenizer", tokenizer]
    command = [sys.executable, "-m", "tests.benchmarks.bench_tokenize", *words]
    # Modules have bytecode, as where they are installed.
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    wall, cpu, peak = json.loads(ended.stdout)
    megabytes = source.stat().st_size / 1e6
    return Run(megabytes / wall, megabytes / cpu, peak)


def measure_here(way: str, tokenizer: str, source: Path, vocabulary: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, wall, cpu = Path(name), time.perf_counter(), time.process_time()
        if way == "floor":
            floor(source, folder, vocabulary)
        elif way == "peer":
            PEERS[tokenizer](source, folder, vocabulary)
        else:
            OURS[tokenizer](source, folder, vocabulary, 2 if way == "two workers" else 1)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(line.split()[1] for line in status.split("\n") if line.startswith("VmHWM"))
    print(json.dumps([wall, cpu + (children.ru_utime + children.ru_stime) / 2, int(peak) / 1024]))


def table(found: dict[str, dict[str, Run]]) -> Iterator[str]:
    """A line a text and way, how ours compares on the last text, and its memory with that of the
    first.
    """
    for text, runs in found.items():
        for way, run in runs.items():
            yield f"{text:6} {way:12} {run.wall:7.1f} MB/s {run.cpu:7.1f} MB/s of CPU {run.peak:7.0f} MB peak"
    first, last = next(iter(found.values())), runs
    for way in ("ours", "two workers"):
        for other in ("peer", "floor"):
            own, least = last[way], last[other]
            yield f"speed, {way} / {other}: {own.wall / least.wall:.2f}, of CPU {own.cpu / least.cpu:.2f}"
    if first is not last:
        yield f"memory, ten times the text: {last['ours'].peak / first['ours'].peak:.3f}"


def texts(folder: Path, megabytes: float) -> list[Path]:
    """A made text, and it ten times over."""
    small, large = folder / "small.txt", folder / "large.txt"
    write_text(small, megabytes)
    large.write_bytes(small.read_bytes() * 10)
    return [small, large]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", choices=list(PEERS), default="word")
    parser.add_argument("--text", type=Path, metavar="FILE", help="in place of generated text")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measure_here(given.one[0], given.tokenizer, *map(Path, given.one[1:]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        read = [given.text] if given.text else texts(folder, given.megabytes)
        made = (
            ours(read[0], folder, None, tokenizer="bpe", vocab_size=TYPES)
            if given.tokenizer == "bpe"
            else folder
        )
        taken: dict[str, dict[str, list[Run]]] = {
            text.stem: {way: [] for way in WAYS} for text in read
        }
        for _ in range(given.rounds):
            for text in read:
                for way in WAYS:
                    taken[text.stem][way].append(
                        measure(way, given.tokenizer, text, made / "tokenizer.json")
                    )
    found = {
        text: {
            way: Run(*map(statistics.median, zip(*runs, strict=True))) for way, runs in ways.items()
        }
        for text, ways in taken.items()
    }
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
