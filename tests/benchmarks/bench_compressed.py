"""Compressed keys, ranked again by the keys themselves, against search of whole keys by lists, at
equal recall.

    python -m tests.benchmarks.bench_compressed --store STORE --index INDEX [--k 4,1024 --recall \\
        own,0.95 --graph]

The index is IVF-flat (L2). Beside ours: FAISS's own search of the same file; its fast scans, in the
same lists, of product-quantised codes of 4 bits (a part to two, or to four numbers) and of RaBitQ's
codes of 1 bit, re-ranked with the keys as they are stored; with --graph, Vamana of `scalable-vs`,
which must be installed. Queries are stored keys, and their own row does not count. Each engine gets
the setting, of a grid, that reaches the recall in the least processor time with --sample of them,
or the highest recall that it has; then all take turns, in one process. A line of JSON an engine:
medians by the clock and by processor time, and `ratio`, its rate beside ours. `products` is the
floor of the machine: matrix products of the queries with the keys of as many lists as ours reads.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

from stages.artifacts.store import Store
from stages.evaluation.plan import ENTRIES_PER_SHARD
from stages.indexing.layouts import MOST_QUERIES
from stages.search.build import training_sample
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys
from stages.search.open import read_index, searcher_of
from tests.benchmarks.bench_lists import products
from tests.benchmarks.engines import (
    EQUAL,
    TRAIN_KEYS,
    Engine,
    Graph,
    Ours,
    Plain,
    fastest,
    product_quantized,
    rabitq,
    stored_keys,
    tried,
)
from tests.benchmarks.timing import timed, times_in_turn


def engines(
    index: Any, probe: int, keys: StoredKeys, codes: bool, graph: dict[str, int] | None
) -> dict[str, Engine]:
    """All engines by name, those of small codes and a graph where they are wanted; says what it
    took to make each.
    """
    searcher = searcher_of(index, "l2", probe)
    assert isinstance(searcher, GroupedSearcher), "needs lists"
    makers: dict[str, Callable[[], Engine]] = {}
    if codes:
        sample, stored = training_sample(keys, min(keys.rows, TRAIN_KEYS), 0), stored_keys(keys)
        makers |= {
            f"pq {keys.dim // 2} x 4": lambda: product_quantized(
                index, keys, sample, stored, keys.dim // 2
            ),
            f"pq {keys.dim // 4} x 4": lambda: product_quantized(
                index, keys, sample, stored, keys.dim // 4
            ),
            "rabitq 1": lambda: rabitq(index, keys, sample, stored),
        }
    if graph is not None:
        makers["vamana"] = lambda: Graph(keys, **graph)
    made: dict[str, Engine] = {"ours": Ours(searcher), "faiss": Plain(index)}
    for name, maker in makers.items():
        taken, made[name] = timed(maker)
        print(
            json.dumps(
                {"engine": name, "made_in": round(taken.wall, 1), "cpu": round(taken.cpu, 1)}
            ),
            flush=True,
        )
    return made


def compare(
    made: dict[str, Engine], index: Any, keys: StoredKeys, k: int, arguments: argparse.Namespace
) -> None:
    """Print a line an engine for every recall."""
    count = min(arguments.queries, ENTRIES_PER_SHARD // k, keys.rows)
    rows = np.sort(np.random.default_rng(0).choice(keys.rows, count, replace=False))
    queries = np.ascontiguousarray(keys.take(rows))
    some = np.sort(
        np.random.default_rng(1).choice(len(rows), min(arguments.sample, len(rows)), replace=False)
    )
    itself = np.stack([rows[some], rows[some] + 1], axis=1)
    true, _ = ExactSearcher(keys, "l2").search(queries[some], k, itself)
    settings = {
        name: tried(engine, queries[some], rows[some], true, k) for name, engine in made.items()
    }
    own = (
        next(one.recall for one in settings["ours"] if one.setting == {"probe": arguments.probe})
        - EQUAL
    )
    for wanted in (own if one == "own" else float(one) for one in arguments.recall.split(",")):
        chosen = {name: fastest(found, wanted) for name, found in settings.items()}
        steps: dict[str, Callable[[], object]] = {
            name: lambda engine=made[name], one=one: engine.search(queries, rows, k, one.setting)
            for name, one in chosen.items()
        }

        def floor(probe: int = chosen["ours"].setting["probe"]) -> None:
            index.nprobe = probe
            products(index, queries)

        taken = times_in_turn(steps | {"products": floor}, arguments.rounds, warm_up=1)
        for name, (wall, cpu) in taken.items():
            about = (
                {}
                if name == "products"
                else {**chosen[name].setting, "recall": round(chosen[name].recall, 4)}
            )
            figures = {
                "queries_per_second": round(len(rows) / wall),
                "us_of_cpu": round(cpu / len(rows) * 1e6, 1),
                "ratio": round(taken["ours"].wall / wall, 2),
                "cpu_ratio": round(taken["ours"].cpu / cpu, 2),
            }
            print(
                json.dumps(
                    {"k": k, "wanted": round(wanted, 4), "engine": name, **about, **figures}
                ),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--k", default="4,1024")
    parser.add_argument(
        "--recall", default="own,0.95", help="own: of ours with the index's probe, less .002"
    )
    parser.add_argument(
        "--queries", type=int, default=MOST_QUERIES, help="and no more than evaluate asks at a time"
    )
    parser.add_argument(
        "--sample", type=int, default=1000, help="queries that recall is measured with"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--no-codes", dest="codes", action="store_false", help="leave out what searches small codes"
    )
    parser.add_argument("--graph", action="store_true", help="Vamana, too; it takes long to make")
    parser.add_argument("--degree", type=int, default=48, help="of Vamana's graph")
    parser.add_argument("--window", type=int, default=128, help="that its graph is made with")
    arguments = parser.parse_args()
    artifact = Store(arguments.store).get(arguments.index, "index")
    keys = StoredKeys(artifact.input("datastore").zarr("datastore.zarr")["keys"])
    index = read_index(artifact.file("index.faiss"))
    print(
        f"{keys.rows:,} keys x {keys.dim}, {index.nlist:,} lists, {faiss.omp_get_max_threads()} threads",
        flush=True,
    )
    graph = {"degree": arguments.degree, "window": arguments.window} if arguments.graph else None
    arguments.probe = artifact.config["probe"]
    made = engines(index, arguments.probe, keys, arguments.codes, graph)
    for k in (int(one) for one in arguments.k.split(",")):
        compare(made, index, keys, k, arguments)


if __name__ == "__main__":
    main()
