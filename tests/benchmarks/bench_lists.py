"""Search of an IVF index list by list against FAISS's `index.search`: same file, same lists read,
same neighbours.

    python -m tests.benchmarks.bench_lists [--store STORE --index INDEX] [--k 4,64,1024] \\
        [--queries 8192] [--copies 1]

Without an index the keys are those that a small model with random weights makes of a text, Python's
documentation or `--text FILE`. Queries are stored keys, a little moved. With --copies each key
stands in its list so many times, a little moved, as in `bench_on_disk`. The two take turns in one
process; the shortest time of each counts, by the clock and by the processors, which other processes
disturb less. Told beside them, as JSON: how many of FAISS's neighbours are found, and the floor of
the machine, the time that the matrix products alone take with one product a list.

Everything runs twice, each time in a process of its own: with an empty environment (`bare`), as in
a notebook, and with OMP_WAIT_POLICY=PASSIVE, which the command line sets (`passive`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ENVIRONMENTS = {"bare": {}, "passive": {"OMP_WAIT_POLICY": "PASSIVE"}}
MOVED = 0.02
"""Of a query's distance from a stored key: times the keys' standard deviation, in every dimension.
"""


def prepare(folder: Path, source: str) -> str:
    """An index of the keys of a text."""
    from stages.artifacts.make import make
    from stages.artifacts.stage import Execution
    from stages.artifacts.store import Store
    from stages.datastore import BuildDatastore, DatastoreConfig
    from stages.index import BuildIndex, IndexConfig
    from stages.text.config import TokenizeConfig
    from stages.tokenize import Tokenize
    from tests.benchmarks.artificial import Model, artificial

    store, cpu = Store(folder), Execution("cpu")
    config = TokenizeConfig(tokenizer="bpe", vocab_size=2048)
    tokens = make(Tokenize(), config, {"source": [source]}, store, cpu).artifact
    shape = {
        "vocab_size": tokens.metrics["vocabulary_size"],
        "layers": 2,
        "width": 128,
        "heads": 4,
        "ffn_width": 512,
    }
    model = {"backbone": "transformer", "max_positions": 128, "positions": "learned", **shape}
    encoder = artificial(
        store, Model(), {"tokens": tokens}, model=model, segment_length=128, context=128, stride=128
    )
    datastore = make(
        BuildDatastore(), DatastoreConfig(), {"source": encoder.reference}, store, cpu
    ).artifact
    lists = IndexConfig(index="ivf-flat")
    return make(BuildIndex(), lists, {"source": datastore.reference}, store, cpu).artifact.reference


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds by the clock, seconds of the processors, and what came out."""
    wall, cpu = time.perf_counter(), time.process_time()
    out = call()
    return time.perf_counter() - wall, time.process_time() - cpu, out


def compare(
    store: str, reference: str, ks: Sequence[int], count: int, rounds: int, copies: int
) -> dict[str, Any]:
    """Measure every k in this process's environment: what was searched, and a row each."""
    import faiss

    from stages.artifacts.store import Store
    from stages.search.keys import StoredKeys
    from stages.search.open import open_searcher
    from stages.search.quality import recall
    from tests.benchmarks.bench_on_disk import write

    index = Store(store).get(reference)
    keys = StoredKeys(index.input("datastore").zarr("datastore.zarr")["keys"])
    with tempfile.TemporaryDirectory() as folder:
        file, rows = index.file("index.faiss"), keys.rows
        if copies > 1:
            file = Path(folder, "index.faiss")
            rows = write(index.file("index.faiss"), copies, file)
        ours = open_searcher(file, index.config, (rows, keys.dim))
        theirs: Any = faiss.read_index(str(file))
    theirs.nprobe = index.config["probe"]
    queries = moved(keys, count)
    floor = min(timed(lambda: products(theirs, queries))[:2] for _ in range(rounds))
    told = []
    for k in ks:
        kinds = {
            "FAISS": lambda k=k: theirs.search(queries, k)[1],
            "ours": lambda k=k: ours.search(queries, k)[0],
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for _ in range(rounds):
            found = {}
            for name, search in kinds.items():
                wall, cpu, found[name] = timed(search)
                times[name].append((wall, cpu))
        (wall, cpu), (own_wall, own_cpu) = (
            [min(column) for column in zip(*times[name], strict=True)] for name in ("FAISS", "ours")
        )
        seconds = {"FAISS": wall, "ours": own_wall, "products": floor[0]}
        row: dict[str, Any] = {
            "k": k,
            **{name: round(len(queries) / taken) for name, taken in seconds.items()},
        }
        row |= {"ratio": round(wall / own_wall, 2), "cpu_ratio": round(cpu / own_cpu, 2)}
        row |= {
            "of_floor": round(floor[0] / own_wall, 2),
            "cpu_of_floor": round(floor[1] / own_cpu, 2),
        }
        told.append(row | {"shared": recall(found["ours"], found["FAISS"], k)})
    shape = {"keys": rows, "dim": keys.dim, "lists": index.config["lists"], "probe": theirs.nprobe}
    return {**shape, "queries": len(queries), "threads": faiss.omp_get_max_threads(), "rows": told}


def moved(keys: Any, count: int) -> np.ndarray:
    """Stored keys drawn at random, float32 [count, d], each a little moved."""
    random = np.random.default_rng(0)
    stored = keys.take(np.sort(random.choice(keys.rows, min(count, keys.rows), replace=False)))
    noise = random.standard_normal(stored.shape, np.float32) * (MOVED * stored.std())
    return np.ascontiguousarray(stored + noise)


def products(index: Any, queries: np.ndarray) -> None:
    """As many products of as many rows and columns as the lists of an index take, all in float32."""
    from stages.threads import thread_pool

    visits = np.bincount(
        index.quantizer.search(queries, index.nprobe)[1].ravel(), minlength=index.nlist
    )
    sizes = [index.invlists.list_size(number) for number in range(index.nlist)]
    columns = np.ones((queries.shape[1], max(sizes)), np.float32)
    with thread_pool() as share:
        share(
            lambda number: queries[: visits[number]] @ columns[:, : sizes[number]],
            range(index.nlist),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store")
    parser.add_argument("--index")
    parser.add_argument("--text", default="builtin:pydocs")
    parser.add_argument("--k", default="4,64,1024")
    parser.add_argument("--queries", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    ks = [int(k) for k in arguments.k.split(",")]
    if arguments.here:
        given = (
            arguments.store,
            arguments.index,
            ks,
            arguments.queries,
            arguments.rounds,
            arguments.copies,
        )
        print(json.dumps(compare(*given)))
        return
    with tempfile.TemporaryDirectory() as folder:
        store, index = (
            arguments.store or folder,
            arguments.index or prepare(Path(folder), arguments.text),
        )
        options = {"store": store, "index": index, "k": arguments.k}
        options |= {
            "queries": str(arguments.queries),
            "rounds": str(arguments.rounds),
            "copies": str(arguments.copies),
        }
        words = [part for name, value in options.items() for part in (f"--{name}", value)]
        rows: list[dict[str, Any]] = []
        for name, environment in ENVIRONMENTS.items():
            command = [sys.executable, "-m", "tests.benchmarks.bench_lists", "--here", *words]
            kept = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
            own = {**environment, **kept, "PYTHONPATH": os.getcwd()}
            told = json.loads(
                subprocess.run(command, check=True, env=own, stdout=subprocess.PIPE).stdout
            )
            rows += [{"name": f"{name}, k = {row['k']:,}", **row} for row in told.pop("rows")]
    print(json.dumps({**told, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
