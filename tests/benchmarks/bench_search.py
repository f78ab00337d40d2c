"""precompute-neighbors against plain batched search in kNN-LM's setting, and memory against corpus size.

    python -m tests.benchmarks.bench_search [--rows 1000000]
    python -m tests.benchmarks.bench_search --memory [--rows 100000]

Speed: keys are clustered vectors of width 128 in a Zarr datastore. Ours is what precompute-neighbors does, k = 4,
own row excluded, with the index that `auto` takes and as many lists as it decides to read: keys are read from
the datastore, searched, and put in order. The baseline is `index.search` of the same queries in batches of 4,096 on
an IVF-PQ index of 4,096 lists and 64 codes of 8 bits, 32 lists read, k + 1. Both take turns; the ratio is that of
the median rates. Recall is against exact search.

Memory: peak of build-index (IVF-PQ, 64 bytes a key in codes of 4 bits, which are learnt quickly) and of
precompute-neighbors in processes of their own, for a corpus and for one ten times as large, the index itself (its
file, which is loaded whole) taken off.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.artifacts.arrays import rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.exact import ExactSearcher
from stages.search.exclusion import forbidden_rows
from stages.search.keys import StoredKeys
from stages.search.open import open_searcher
from stages.search.recall import recall
from tests.benchmarks.artificial import Artificial, Model, Tokens, artificial

DIM, LATENT, CLUSTERS = 128, 32, 1000
K = 4
BATCH = 4096
KNN_LM = {"index": "ivf-pq", "lists": 4096, "code_bytes": 64, "probe": 32}


class ClusteredKeys(Artificial):
    """A datastore of clustered vectors: a mixture in 32 dimensions, turned into 128, and noise."""

    kind = "datastore"

    def run(self, job: Any) -> dict[str, Any]:
        random, rows = np.random.default_rng(0), job.config.rows
        centers = random.standard_normal((CLUSTERS, LATENT), np.float32)
        index = random.standard_normal((LATENT, DIM), np.float32) / LATENT**0.5
        keys = job.draft.array("datastore.zarr/keys", (rows, DIM), np.float16, rows_per_shard(2 * DIM))
        for shard in range(keys.shards):
            count = keys.rows(shard).stop - keys.rows(shard).start
            latent = centers[random.integers(0, CLUSTERS, count)]
            latent = latent + 0.6 * random.standard_normal((count, LATENT), np.float32)
            noise = 0.15 * random.standard_normal((count, DIM), np.float32)
            keys.write(shard, (latent @ index + noise).astype(np.float16))
            job.draft.commit(f"keys-{shard}")
        return {"rows": rows, "dim": DIM, "dtype": "float16"}


def clustered(store: Store, rows: int) -> Artifact:
    tokens = artificial(store, Tokens(), {}, splits={"train": rows})
    model = artificial(store, Model(), {"tokens": tokens})
    return artificial(store, ClusteredKeys(), {"encoder": model, "corpus": tokens}, rows=rows)


def build(store: Store, datastore: Artifact, **settings: Any) -> Artifact:
    config = IndexConfig(**settings)
    return make(BuildIndex(), config, {"source": datastore.reference}, store, Execution("cpu")).artifact


def ours(index: Artifact, keys: StoredKeys, block: int) -> Callable[[int], tuple[int, np.ndarray]]:
    resolved = PrecomputeNeighbors().resolve(NeighborsConfig(k=K), _inputs(index), Execution("cpu"))
    print(f"ours: {index.config['index']}, {index.config['lists']} lists, {resolved.probe} read")
    searcher = open_searcher(
        index.file("index.faiss"),
        {**index.config, "probe": resolved.probe},
        (index.metrics["rows"], index.metrics["dim"]),
    )

    def run(start: int) -> tuple[int, np.ndarray]:
        stop = min(start + block, keys.rows)
        queries = keys.rows_between(start, stop).astype(np.float32)
        ids, _ = searcher.search(queries, K, forbidden_rows("self", start, stop, None))
        return stop - start, ids

    return run


def plain(index: Artifact, keys: StoredKeys, block: int) -> Callable[[int], tuple[int, np.ndarray]]:
    searched = faiss.read_index(str(index.file("index.faiss")))
    searched.nprobe = KNN_LM["probe"]

    def run(start: int) -> tuple[int, np.ndarray]:
        stop = min(start + block, keys.rows)
        queries = keys.rows_between(start, stop).astype(np.float32)
        found = [searched.search(queries[i : i + BATCH], K + 1)[1] for i in range(0, len(queries), BATCH)]
        return stop - start, _others(np.concatenate(found), start)

    return run


def _others(ids: np.ndarray, start: int) -> np.ndarray:
    """The first K of each row's K + 1 ids that are not its own."""
    own = ids == np.arange(start, start + len(ids))[:, None]
    order = np.argsort(own, axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1)[:, :K]


def _inputs(index: Artifact) -> Any:
    from stages.artifacts.stage import Inputs

    return Inputs({"index": index, "queries": index.find("corpus")})


def speed(rows: int, rounds: int, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        datastore = clustered(store, rows)
        keys = StoredKeys(datastore.zarr("datastore.zarr")["keys"])
        started = time.perf_counter()
        automatic = build(store, datastore)
        print(f"built in {time.perf_counter() - started:.0f} s; recall by lists read: ", end="")
        print({p: r[str(K)] for p, r in automatic.metrics.get("recall_by_probe", {}).items()})
        started = time.perf_counter()
        compressed = build(store, datastore, **KNN_LM)
        print(f"baseline built in {time.perf_counter() - started:.0f} s")
        runs = {"ours": ours(automatic, keys, block), "plain": plain(compressed, keys, BATCH)}
        found = {name: run(0)[1] for name, run in runs.items()}
        rates: dict[str, list[float]] = {name: [] for name in runs}
        for index in range(rounds):
            for name, run in runs.items():
                start = index * block % max(1, rows - block)
                began = time.perf_counter()
                queries, _ = run(start)
                rates[name].append(queries / (time.perf_counter() - began))
        sample = np.arange(1000)
        true, _ = ExactSearcher(keys, "l2").search(keys.take(sample), K, np.stack([sample, sample + 1], axis=1))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        for name, rate in medians.items():
            print(f"{name:6} {rate:9,.0f} queries/s  recall@{K} {recall(found[name][:1000], true, K):.4f}")
        print(
            f"ours / plain: {medians['ours'] / medians['plain']:.2f}  ({rows:,} keys of width {DIM}, "
            f"{faiss.omp_get_max_threads()} threads)"
        )


def memory(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[str, list[float]] = {"build-index": [], "precompute-neighbors": []}
        for count in (rows, 10 * rows):
            store = Store(Path(folder, str(count)))
            datastore = clustered(store, count)
            index = _peak("build-index", store, datastore.reference, peaks)
            _peak("precompute-neighbors", store, index, peaks)
        for command, (small, large) in peaks.items():
            print(f"{command:22} {small:6.0f} MB, ten times the keys {large:6.0f} MB: {large / small:.3f}")


def _peak(command: str, store: Store, source: str, peaks: dict[str, list[float]]) -> str:
    """Run one stage in a process of its own; note its peak less the index, and return its reference."""
    arguments = [sys.executable, "-m", __spec__.name, "--one", command, str(store.root), source]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    peaks[command].append(result["megabytes"] - result["index_megabytes"])
    print(command, result)
    return str(result["reference"])


def one(command: str, root: str, source: str) -> None:
    """Make one artifact and print what it took."""
    store = Store(root)
    if command == "build-index":
        made = build(store, store.get(source), index="ivf-pq", code_bytes=64, code_bits=4)
        index = made
    else:
        execution, references = Execution("cpu"), {"source": source}
        made = make(PrecomputeNeighbors(), NeighborsConfig(k=K), references, store, execution).artifact
        index = made.input("index")
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(line.split()[1] for line in status.split("\n") if line.startswith("VmHWM"))
    size = index.metrics["bytes"] / 1e6
    print(json.dumps({"reference": made.reference, "megabytes": int(peak) * 1024 / 1e6, "index_megabytes": size}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block", type=int, default=1 << 17, help="queries of ours searched together")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(*arguments.one)
    elif arguments.memory:
        memory(arguments.rows)
    else:
        speed(arguments.rows, arguments.rounds, arguments.block)


if __name__ == "__main__":
    main()
