"""k-means and adding keys in build-index, beside FAISS's own, and beside matrix products alone.

    python -m tests.benchmarks.bench_build_index [--store STORE --index INDEX] [--rows 200000]

Without an index: clustered vectors of width 128. The settings are those of the index, which has
lists. `train` draws a sample of the keys, learns lists (and codes) of it and writes the empty
index; `add` finds the list of every key, part by part; `merge` writes the index. FAISS does the
same with one index in memory: `train` of the same sample, `add` of the same keys in blocks,
`write_index`. Both take turns in one process. `products` is the floor of the machine: products of
the sample with the means, as often as k-means has rounds, and of all keys with the means. A line of
JSON a part:
medians, seconds by the clock and of the processors, and what ours takes in times of the other two.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.indexing.settings import PART_BYTES
from stages.search import build
from stages.search.automatic import resolve
from stages.search.config import IndexConfig, Keys
from stages.search.factory import empty_index
from stages.search.keys import StoredKeys, widened
from stages.search.open import read_index
from stages.threads import thread_pool
from tests.benchmarks.bench_search import clustered
from tests.benchmarks.timing import Seconds, medians, timed

TILE_SCORES = 1 << 19
"""Scores that a thread computes at a time, so that they stay in its cache."""


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[tuple[StoredKeys, IndexConfig]]:
    """Keys, and the settings of an index of them."""
    if arguments.index is not None:
        index = Store(arguments.store).get(arguments.index, "index")
        yield _keys(index.input("datastore")), IndexConfig(**index.config)
        return
    with tempfile.TemporaryDirectory() as folder:
        keys = _keys(clustered(Store(folder), arguments.rows))
        yield (
            keys,
            resolve(IndexConfig(index="ivf-flat"), Keys(keys.rows, keys.dim, keys.dtype.name)),
        )


def _keys(datastore: Artifact) -> StoredKeys:
    return StoredKeys(datastore.zarr("datastore.zarr")["keys"])


def ours(config: IndexConfig, keys: StoredKeys, folder: Path, together: int) -> dict[str, Seconds]:
    """Seconds of each part of `build-index`, without recall."""
    empty, whole = folder / "empty.faiss", folder / "ours.faiss"
    taken = {"train": timed(lambda: build.train(config, keys, empty))[0]}
    trained, parts = read_index(empty), list[build.FilledLists]()

    def add() -> None:
        for number, first in enumerate(range(0, keys.shards, together)):
            part = folder / f"{number}.lists"
            build.write_part(trained, keys, range(first, min(first + together, keys.shards)), part)
            parts.append(build.FilledLists.read(part))

    taken["add"] = timed(add)[0]
    taken["merge"] = timed(lambda: build.merge(trained, parts, keys.rows, whole))[0]
    return taken


def theirs(
    config: IndexConfig, keys: StoredKeys, sample: np.ndarray, folder: Path
) -> tuple[dict[str, Seconds], Any]:
    """Seconds of the same with FAISS's index alone, and that index."""
    index = empty_index(config, keys.dim, keys.dtype.name)
    taken = {"train": timed(lambda: index.train(sample))[0]}

    def add() -> None:
        for _, block in keys.each():
            index.add(widened(block))

    taken["add"] = timed(add)[0]
    taken["merge"] = timed(lambda: build.write_index(index, folder / "theirs.faiss"))[0]
    return taken, index


def products(sample: np.ndarray, means: np.ndarray) -> None:
    """Multiply all keys of a sample with all means."""
    columns, rows = np.ascontiguousarray(means.T), max(1, TILE_SCORES // len(means))
    with thread_pool() as share:
        share(lambda first: sample[first : first + rows] @ columns, range(0, len(sample), rows))


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with opened(arguments) as (keys, config), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert config.lists is not None and isinstance(config.train_keys, int), "needs lists"
        sample = build.training_sample(keys, config.train_keys, config.seed)
        together = max(1, PART_BYTES // (keys.rows_per_shard * keys.dim * keys.dtype.itemsize))
        times: dict[str, list[dict[str, Seconds]]] = {"ours": [], "faiss": [], "products": []}
        for _ in range(arguments.rounds):
            times["ours"].append(ours(config, keys, folder, together))
            taken, index = theirs(config, keys, sample, folder)
            times["faiss"].append(taken)
            ivf = faiss.extract_index_ivf(index)
            means = ivf.quantizer.reconstruct_n(0, ivf.nlist)
            once, _ = timed(lambda means=means: products(sample, means))
            often = {"train": ivf.cp.niter, "add": keys.rows / len(sample)}
            times["products"].append(
                {part: Seconds(*(s * n for s in once)) for part, n in often.items()}
            )
        threads = faiss.omp_get_max_threads()
        yield {
            "keys": f"{keys.rows} x {keys.dim}",
            "lists": config.lists,
            "sample": len(sample),
            "threads": threads,
        }
        for part in ("train", "add", "merge"):
            yield {
                "part": part,
                **told(
                    {name: [one[part] for one in all if part in one] for name, all in times.items()}
                ),
            }


def told(times: dict[str, list[Seconds]]) -> dict[str, Any]:
    """Medians, and ours in times of each other."""
    taken = {name: medians(some) for name, some in times.items() if some}
    figures: dict[str, Any] = {}
    for name, (wall, cpu) in taken.items():
        figures[name] = {"seconds": round(wall, 2), "cpu": round(cpu, 2)}
        if name != "ours":
            figures[name] |= {
                "ratio": round(taken["ours"].wall / wall, 2),
                "cpu_ratio": round(taken["ours"].cpu / cpu, 2),
            }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store")
    parser.add_argument("--index")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    for line in measure(parser.parse_args()):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
