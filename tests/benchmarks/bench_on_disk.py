"""Search of an index about ten times as large as the memory allowed, beside the same search in
memory.

    python -m tests.benchmarks.bench_on_disk --store STORE --index INDEX [--copies 112] \\
        [--gigabytes 1.3] [--k 4,1024]

The index has the lists of INDEX (IVF-flat of float16 keys), and in them every key as many times,
each a little moved; it is written once into --folder. It is searched for stored keys, moved
further, three times, each time in a process of its own: in memory; with `ulimit -d` of so many
gigabytes, so that its lists stay on the disk; and so, while the system is told all the time to
forget what it has of the file, as if there were no memory to cache it. Told are queries a second,
by the clock and the processors, peak memory, recall of the first --sample queries beside comparing
with all keys, and whether all that were searched find the same. The floor of the machine is its
disk: the file is read from beginning to end, the system told before to forget it. `floor` is the
rate of queries if a search of all of them did no more than that.

An index of ten times the memory cannot be held beside, so that there only "disk, not cached" is
wanted: --how.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NOISE, MOVED = 0.1, 0.2
"""Of copies and of queries: times the standard deviation of the keys."""
READ_BYTES = 64 << 20
AT_ONCE = 1 << 15
HOW = ("memory", "disk", "disk, not cached")


def write(source: Path, copies: int, path: Path) -> int:
    """An index with every key of another one so many times; returns the number of keys."""
    from stages.search.lists import InvertedLists, write_with_lists
    from stages.search.open import read_index

    lists, random = InvertedLists(read_index(source)), np.random.default_rng(0)
    scale = np.float32(
        NOISE * lists.codes(int(lists.sizes.argmax())).view(np.float16).astype(np.float32).std()
    )

    def moved() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in lists.filled:
            keys = lists.codes(number).view(np.float16).astype(np.float32)
            codes = np.empty((len(keys), copies, keys.shape[1]), np.float16)
            for copy in range(copies):
                codes[:, copy] = keys + scale * random.standard_normal(keys.shape, np.float32)
            rows = lists.ids(number)[:, None] * copies + np.arange(copies)
            yield codes.reshape(-1, keys.shape[1]).view(np.uint8), rows.ravel()

    rows = int(lists.sizes.sum()) * copies
    empty = read_index(source)
    empty.reset()
    write_with_lists(empty, rows, lists.sizes * copies, moved(), path)
    return rows


def queries_of(source: Path, count: int) -> np.ndarray:
    """Keys of an index drawn at random, moved, [count, d]."""
    from stages.search.lists import InvertedLists
    from stages.search.open import read_index

    lists, random = InvertedLists(read_index(source)), np.random.default_rng(1)
    numbers = random.choice(len(lists.sizes), count, p=lists.sizes / lists.sizes.sum())
    found = [
        lists.codes(n).view(np.float16)[random.integers(lists.sizes[n])].astype(np.float32)
        for n in numbers.tolist()
    ]
    keys = np.stack(found)
    return keys + np.float32(MOVED * keys.std()) * random.standard_normal(keys.shape, np.float32)


def true_rows(path: Path, queries: np.ndarray, k: int) -> np.ndarray:
    """Rows of the k nearest keys of all, by products in float32."""
    from stages.search.lists import InvertedLists
    from stages.search.open import read_index
    from stages.search.ranking import best_first

    lists = InvertedLists(read_index(path, mapped=True))
    scores, rows = np.full((len(queries), k), np.inf, np.float32), np.full((len(queries), k), -1)
    for number in lists.filled:
        keys, ids = lists.codes(number).view(np.float16), lists.ids(number)
        for start in range(0, len(ids), AT_ONCE):
            some = keys[start : start + AT_ONCE].astype(np.float32)
            own = np.einsum("nd,nd->n", some, some) - 2 * (queries @ some.T)
            near = own.argpartition(min(k, len(some)) - 1, axis=1)[:, :k]
            scores = np.concatenate([scores, np.take_along_axis(own, near, axis=1)], axis=1)
            rows = np.concatenate([rows, ids[start : start + AT_ONCE][near]], axis=1)
            scores, rows = best_first(scores, rows, k)
    return rows


def disk_rate(path: Path) -> float:
    """Bytes a second of a file that nothing is held of, read in order."""
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        room, began = bytearray(READ_BYTES), time.perf_counter()
        while file.readinto(room):
            pass
        return path.stat().st_size / (time.perf_counter() - began)


def forget(path: Path) -> None:
    """Tell the system, from now on, to keep nothing of a file."""

    def repeat() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        while True:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.05)

    threading.Thread(target=repeat, daemon=True).start()


def search(
    folder: Path, how: str, gigabytes: float, rows: int, probe: int, ks: list[int]
) -> dict[str, Any]:
    """Search here, and say what it took; what is found is written beside the index."""
    from stages.search import open as opening
    from stages.search.open import open_searcher, stays_on_disk

    path, queries = folder / "index.faiss", np.load(folder / "queries.npy")
    if how == "memory":
        opening.MEMORY_SHARE = 0.9
        assert not stays_on_disk(path), "too little memory"
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 1e9), int(gigabytes * 1e9)))
        assert stays_on_disk(path)
    if how == HOW[2]:
        forget(path)
    began = time.perf_counter()
    searcher: Any = open_searcher(path, {"metric": "l2", "probe": probe}, (rows, queries.shape[1]))
    taken: dict[str, Any] = {"how": how, "opened in": round(time.perf_counter() - began, 1)}
    taken["from the disk"] = searcher.lists.mapped
    for k in ks:
        wall, cpu = time.perf_counter(), time.process_time()
        ids, _ = searcher.search(queries, k)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        np.save(folder / f"{HOW.index(how)}-{k}.npy", ids)
        taken[f"k {k}"] = {
            "queries/s": round(len(queries) / wall, 1),
            "ms of CPU a query": round(cpu / len(queries) * 1e3, 2),
        }
    status = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    )
    peaks = {"peak MB": "VmHWM", "data MB": "VmData"}
    taken |= {name: int(status[field].split()[0]) // 1000 for name, field in peaks.items()}
    return taken


def compare(folder: Path, how: list[str], ks: list[int], sample: int) -> None:
    from stages.search.quality import recall

    for k in ks:
        found = [np.load(folder / f"{HOW.index(one)}-{k}.npy") for one in how]
        true = true_rows(folder / "index.faiss", np.load(folder / "queries.npy")[:sample], k)
        print(
            f"k {k}: recall {recall(found[-1][:sample], true, k):.4f} of {len(true)} queries, "
            f"the same in {sum(np.array_equal(found[0], one) for one in found)} of {len(found)} runs",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--copies", type=int, default=112)
    parser.add_argument("--gigabytes", type=float, default=1.3)
    parser.add_argument("--queries", type=int, default=4096)
    parser.add_argument(
        "--sample", type=int, default=64, help="queries that recall is measured with"
    )
    parser.add_argument("--k", default="4,1024")
    parser.add_argument("--folder", help="where the index is kept; else it is removed")
    parser.add_argument(
        "--how", help=f"of {', '.join(HOW)}; separated by semicolons", default=";".join(HOW)
    )
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    ks = [int(k) for k in arguments.k.split(",")]

    from stages.artifacts.store import Store

    index = Store(arguments.store).get(arguments.index)
    rows = index.metrics["rows"] * arguments.copies
    if arguments.here:
        folder, how = Path(arguments.here[0]), arguments.here[1]
        print(json.dumps(search(folder, how, arguments.gigabytes, rows, index.config["probe"], ks)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = Path(arguments.folder or temporary)
        path, source = folder / "index.faiss", index.file("index.faiss")
        if not path.exists():
            began = time.perf_counter()
            write(source, arguments.copies, path)
            print(f"written in {time.perf_counter() - began:.0f} s")
        np.save(folder / "queries.npy", queries_of(source, arguments.queries))
        size, lists, rate = path.stat().st_size / 1e9, index.config["probe"], disk_rate(path)
        print(f"{rows:,} keys, {size:.2f} GB, {arguments.queries:,} queries, {lists} lists read")
        print(
            f"disk: {rate / 1e6:,.0f} MB/s; floor: {arguments.queries * rate / path.stat().st_size:,.1f} queries/s",
            flush=True,
        )
        given = [
            "--store",
            arguments.store,
            "--index",
            arguments.index,
            "--copies",
            str(arguments.copies),
        ]
        given += ["--gigabytes", str(arguments.gigabytes), "--k", arguments.k]
        for how in arguments.how.split(";"):
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.bench_on_disk",
                *given,
                "--here",
                str(folder),
                how,
            ]
            subprocess.run(command, check=True)
        compare(folder, arguments.how.split(";"), ks, arguments.sample)


if __name__ == "__main__":
    main()
