"""Evaluation that searches an index, k = 1,024, beside the plain model and beside FAISS's search
alone.

    python -m tests.benchmarks.bench_evaluate_search --store STORE --index INDEX [--tokens 32768 \\
        --k 1024]

The index has lists, and its datastore's model is evaluated on the first tokens of the test split.
All take turns in one process: `plain`, the whole evaluation without memory, from opening the
artifacts to the published report; `knn-lm`, the same with neighbours found in the index, λ and τ
given; `faiss`, `index.search` of the same queries in the same index, the same lists read; `ours`,
our search of them; `products`, the floor of the machine, matrix products of the queries with the
keys of the lists that they read. Told in tokens a second and microseconds of the processors a
token, medians; ratios are knn-lm's rate to another's, and to that of plain evaluation and FAISS's
search one after the other. `shared` is the share of FAISS's neighbours that ours finds.
OMP_WAIT_POLICY is PASSIVE, as the command line sets it.
"""

import os

if __name__ == "__main__":  # before libraries are loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.search.open import open_searcher, read_index
from stages.search.quality import recall
from tests.benchmarks.bench_lists import products
from tests.benchmarks.borrowed import borrowed, excerpt
from tests.benchmarks.timing import Seconds, evaluation_time, medians, timed

SPLIT = "test"


def queries_of(datastore: Artifact, tokens: Artifact) -> np.ndarray:
    """Keys of all tokens of the split, float32 [n, d]."""
    windows = WindowSettings.of(datastore.config)
    reader = SplitReader(Corpus.of(tokens), windows, False, torch.device("cpu"), "fp32")
    count = int(tokens.metrics["splits"][SPLIT]["tokens"])
    return search_keys(KeyEncoder.of(datastore, reader).encode(SPLIT, 0, count, None).keys)


def measure(store: Store, arguments: argparse.Namespace) -> dict[str, Any]:
    index = store.get(arguments.index, "index")
    datastore, model = index.input("datastore"), index.find("encoder")
    tokens = excerpt(store, model.input("tokens"), train=arguments.tokens, test=arguments.tokens)
    queries, k = queries_of(datastore, tokens), arguments.k
    metrics = datastore.metrics
    ours = open_searcher(index.file("index.faiss"), index.config, (metrics["rows"], metrics["dim"]))
    theirs = read_index(index.file("index.faiss"))
    theirs.nprobe = index.config["probe"]
    given = f"external:k={k},lambda=0.25,temperature=1"

    def evaluated(source: Artifact, memory: str) -> Seconds:
        return evaluation_time(store, source, memory, tokens=tokens, precision="fp32")

    times: dict[str, list[Seconds]] = {
        name: [] for name in ("plain", "knn-lm", "faiss", "ours", "products")
    }
    shared = 0.0
    for number in range(arguments.rounds + 1):
        searched, true = timed(lambda: theirs.search(queries, k)[1])
        own, found = timed(lambda: ours.search(queries, k)[0])
        shared = recall(found, true, k)
        alone, _ = timed(lambda: products(theirs, queries))
        each = (evaluated(model, "none"), evaluated(index, given), searched, own, alone)
        if number:
            for name, taken in zip(times, each, strict=True):
                times[name].append(taken)
    return {
        "keys": f"{metrics['rows']} x {metrics['dim']}",
        "lists": f"{theirs.nprobe} of {theirs.nlist}",
        "tokens": len(queries),
        "k": k,
        "threads": torch.get_num_threads(),
        "shared": round(shared, 5),
        **told({name: medians(taken) for name, taken in times.items()}, len(queries)),
    }


def told(taken: dict[str, Seconds], tokens: int) -> dict[str, Any]:
    """Rates and ratios."""
    knn = taken["knn-lm"]
    beside = taken | {
        "plain + faiss": Seconds(*map(sum, zip(taken["plain"], taken["faiss"], strict=True)))
    }
    del beside["knn-lm"]
    return {
        "tokens_per_second": {name: round(tokens / one.wall) for name, one in taken.items()},
        "us_of_cpu": {name: round(one.cpu / tokens * 1e6, 1) for name, one in taken.items()},
        "ratio": {name: round(one.wall / knn.wall, 3) for name, one in beside.items()},
        "cpu_ratio": {name: round(one.cpu / knn.cpu, 3) for name, one in beside.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--k", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with borrowed(arguments.store) as store:
        print(json.dumps(measure(store, arguments)))


if __name__ == "__main__":
    main()
