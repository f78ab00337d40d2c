"""precompute-neighbors against plain batched search in kNN-LM's setting, and memory against corpus
size.

    python -m tests.benchmarks.bench_search [--rows 1000000] [--profile]
    python -m tests.benchmarks.bench_search --memory [--rows 100000]

Speed: keys are clustered vectors of width 128 in a Zarr datastore. Ours is what
precompute-neighbors does, k = 4, own row excluded, with the index that `auto` takes and as many
lists as it decides to read: keys are read from the datastore, searched, and put in order. Beside
it, in batches of 4,096, k + 1: `plain`, kNN-LM's setting, FAISS's `index.search` on an IVF-PQ index
of 4,096 lists and 64 codes of 8 bits, 32 lists read; and `fast scan`, FAISS's fastest recipe, codes
of 64 x 4 bits in our lists, re-ranked with the keys as they are stored, with the lists and
candidates that reach the recall of ours, less .002, in the least time. Both once more with those
that reach .95. All take turns; rates are medians, recall is against exact search. `products` is the
floor of the machine: matrix products with the keys of the lists that ours reads. With --profile:
where ours spends its time, on one thread.

Memory: peak of build-index (IVF-PQ, 64 bytes a key in codes of 4 bits, which are learnt quickly)
and of precompute-neighbors in processes of their own, for a corpus and for one ten times as large,
the index itself (its file, which is loaded whole) taken off.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import STAGES
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.build import training_sample
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys, widened
from stages.search.open import read_index, searcher_of
from stages.search.quality import recall
from tests.benchmarks.artificial import Artificial, Model, Tokens, artificial
from tests.benchmarks.bench_lists import products
from tests.benchmarks.engines import (
    EQUAL,
    TRAIN_KEYS,
    Engine,
    Ours,
    Plain,
    Reranked,
    Setting,
    fastest,
    others,
    product_quantized,
    stored_keys,
    tried,
)
from tests.benchmarks.function_times import own_seconds, told
from tests.benchmarks.timing import Seconds, timed, times_in_turn

DIM, LATENT, CLUSTERS = 128, 32, 1000
K = 4
BATCH = 4096
SAMPLE, WANTED = 1000, 0.95
"""Queries that recall is measured with, and the recall that settings of the fast scan are chosen
for.
"""
PARTS = DIM // 2
KNN_LM = {"index": "ivf-pq", "lists": 4096, "code_bytes": 64, "probe": 32}


class ClusteredKeys(Artificial):
    """A datastore of clustered vectors: a mixture in 32 dimensions, turned into 128, and noise."""

    name = "clustered-keys"
    kind = "datastore"

    def run(self, job: Any) -> dict[str, Any]:
        random, rows = np.random.default_rng(0), job.config.rows
        centers = random.standard_normal((CLUSTERS, LATENT), np.float32)
        index = random.standard_normal((LATENT, DIM), np.float32) / LATENT**0.5
        keys = ArrayLayout("datastore.zarr/keys", (rows, DIM), np.float16, rows_per_shard(2 * DIM))
        job.draft.create(keys)
        for shard in range(keys.shards):
            count = keys.rows(shard).stop - keys.rows(shard).start
            latent = centers[random.integers(0, CLUSTERS, count)]
            latent = latent + 0.6 * random.standard_normal((count, LATENT), np.float32)
            noise = 0.15 * random.standard_normal((count, DIM), np.float32)
            job.draft.write(keys, shard, (latent @ index + noise).astype(np.float16))
            job.draft.commit(f"keys-{shard}")
        return {"rows": rows, "dim": DIM, "dtype": "float16"}


STAGES.targets |= {one.name: f"{__name__}:{one.__name__}" for one in (ClusteredKeys,)}


def clustered(store: Store, rows: int) -> Artifact:
    tokens = artificial(store, Tokens(), {}, splits={"train": rows})
    model = artificial(store, Model(), {"tokens": tokens})
    return artificial(store, ClusteredKeys(), {"encoder": model, "corpus": tokens}, rows=rows)


def build(store: Store, datastore: Artifact, **settings: Any) -> Artifact:
    config = IndexConfig(**settings)
    return make(
        BuildIndex(), config, {"source": datastore.reference}, store, Execution("cpu")
    ).artifact


def searches(
    index: Artifact, compressed: Artifact, keys: StoredKeys
) -> tuple[GroupedSearcher, Any, Plain, Reranked]:
    """Ours, reading as many lists as it decides to; the index that it reads, as FAISS has it; and
    both of FAISS's.
    """
    resolved = PrecomputeNeighbors().resolve(NeighborsConfig(k=K), _inputs(index), Execution("cpu"))
    print(f"ours: {index.config['index']}, {index.config['lists']} lists, {resolved.probe} read")
    lists, codes = (read_index(one.file("index.faiss")) for one in (index, compressed))
    assert isinstance(resolved.probe, int)
    searcher = searcher_of(lists, "l2", resolved.probe)
    assert isinstance(searcher, GroupedSearcher)
    codes.precompute_table()
    sample = training_sample(keys, min(keys.rows, TRAIN_KEYS), 0)
    return (
        searcher,
        lists,
        Plain(codes),
        product_quantized(lists, keys, sample, stored_keys(keys), PARTS),
    )


def _inputs(index: Artifact) -> Any:
    from stages.artifacts.stage import Inputs

    return Inputs({"index": index, "queries": index.find("corpus")})


def speed(rows: int, rounds: int, block: int, profile: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, block = Store(folder), min(block, rows)
        datastore = clustered(store, rows)
        keys = StoredKeys(datastore.zarr("datastore.zarr")["keys"])
        taken, automatic = timed(lambda: build(store, datastore))
        print(f"built in {taken.wall:.0f} s; recall by lists read: ", end="")
        print({p: r[str(K)] for p, r in automatic.metrics.get("recall_by_probe", {}).items()})
        taken, compressed = timed(lambda: build(store, datastore, **KNN_LM, recall=0))
        print(f"baseline built in {taken.wall:.0f} s", flush=True)
        searcher, lists, plain, fast = searches(automatic, compressed, keys)
        sample = np.arange(min(SAMPLE, rows))
        some, itself = keys.take(sample), np.stack([sample, sample + 1], axis=1)
        true, _ = ExactSearcher(keys, "l2").search(some, K, itself)

        def found(engine: Engine, setting: Setting) -> float:
            return recall(others(engine.search(some, sample, K, setting), sample, K), true, K)

        own = Ours(searcher)
        wanted, scans = found(own, own.own), tried(fast, some, sample, true, K)
        engines: dict[str, tuple[Engine, Setting]] = {
            "ours": (own, own.own),
            f"ours {WANTED}": (own, fastest(tried(own, some, sample, true, K), WANTED).setting),
            "plain": (plain, {"probe": KNN_LM["probe"]}),
            "fast scan": (fast, fastest(scans, wanted - EQUAL).setting),
            f"fast scan {WANTED}": (fast, fastest(scans, WANTED).setting),
        }
        sizes = {
            name: block if engine is own else min(BATCH, rows)
            for name, (engine, _) in engines.items()
        }
        steps = {name: in_blocks(*engines[name], keys, size) for name, size in sizes.items()}
        queries = widened(keys.rows_between(0, block))

        def floor() -> None:
            lists.nprobe = own.own["probe"]
            products(lists, queries)

        medians = times_in_turn(steps | {"products": floor}, rounds, warm_up=1)
        each = {
            name: Seconds(*(s / sizes.get(name, block) for s in taken))
            for name, taken in medians.items()
        }
        print(f"{rows:,} keys of width {DIM}, {faiss.omp_get_max_threads()} threads")
        for name, (wall, cpu) in each.items():
            ratios = (
                f"ours / it: {wall / each['ours'].wall:.2f}, by CPU {cpu / each['ours'].cpu:.2f}"
            )
            known = (
                f"recall@{K} {found(*engines[name]):.4f}, {engines[name][1]}"
                if name in engines
                else "the floor"
            )
            print(
                f"{name:14} {1 / wall:9,.0f} queries/s {cpu * 1e6:8.1f} us of CPU  {ratios}  {known}",
                flush=True,
            )
        if profile:
            print(told(own_seconds(steps["ours"])))


def in_blocks(
    engine: Engine, setting: Setting, keys: StoredKeys, block: int
) -> Callable[[], object]:
    """Searches for the next keys, so many at a time, which are read first."""
    starts = itertools.cycle(range(0, keys.rows - block + 1, block))

    def step() -> np.ndarray:
        rows = np.arange(block) + next(starts)
        return engine.search(widened(keys.rows_between(rows[0], rows[-1] + 1)), rows, K, setting)

    return step


def memory(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[str, list[float]] = {"build-index": [], "precompute-neighbors": []}
        for count in (rows, 10 * rows):
            store = Store(Path(folder, str(count)))
            datastore = clustered(store, count)
            index = _peak("build-index", store, datastore.reference, peaks)
            _peak("precompute-neighbors", store, index, peaks)
        for command, (small, large) in peaks.items():
            print(
                f"{command:22} {small:6.0f} MB, ten times the keys {large:6.0f} MB: {large / small:.3f}"
            )


def _peak(command: str, store: Store, source: str, peaks: dict[str, list[float]]) -> str:
    """Run one stage in a process of its own; note its peak less the index, and return its
    reference.
    """
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
        made = make(
            PrecomputeNeighbors(), NeighborsConfig(k=K), references, store, execution
        ).artifact
        index = made.input("index")
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(line.split()[1] for line in status.split("\n") if line.startswith("VmHWM"))
    size = index.metrics["bytes"] / 1e6
    print(
        json.dumps(
            {
                "reference": made.reference,
                "megabytes": int(peak) * 1024 / 1e6,
                "index_megabytes": size,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--block", type=int, default=1 << 17, help="queries of ours searched together"
    )
    parser.add_argument(
        "--profile", action="store_true", help="where the time of ours goes, on one thread"
    )
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(*arguments.one)
    elif arguments.memory:
        memory(arguments.rows)
    else:
        speed(arguments.rows, arguments.rounds, arguments.block, arguments.profile)


if __name__ == "__main__":
    main()
