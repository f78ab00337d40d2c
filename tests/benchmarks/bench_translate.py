"""Translating with neighbours at every step, beside the model alone and beside the searches alone.

    python -m tests.benchmarks.bench_translate --store STORE --index INDEX --lines FILE [--count 128 --k 16 --rounds 3]

The first lines of a file are translated in one process, in turn: `plain`, by the model of the index; `kNN-MT`, with k
neighbours, λ .5; `similar pairs`, by the tokens of 4 and of 16 pairs of the datastore's text; `search`, our searches
of that run alone; `FAISS`, its own search of the same queries, as many lists read. Told in processor seconds, medians,
for other work on the machine takes no part in them; ratios are to plain.
"""

import argparse
import json
from functools import partial
from itertools import islice
from typing import Any

import faiss
import numpy as np
import torch

from stages.artifacts.store import Store
from stages.generation.translate import LineTranslator, Translated, open_line_translator
from stages.inspection.settings import Request
from stages.search.open import read_index
from stages.translation.settings import TranslationRequest
from stages.translation.step_memory import IndexSteps
from tests.benchmarks.timing import Seconds, medians, timed

PAIRS = 4, 16


def opened(store: Store, source: str, memory: str, tokens: str | None = None) -> LineTranslator:
    return open_line_translator(Request(source=source, memory=(memory,), tokens=tokens), store, TranslationRequest())


def translated(translator: LineTranslator, lines: list[str]) -> list[Translated]:
    return list(translator.translate(lines, attribute=False))


def measure(store: Store, arguments: argparse.Namespace) -> dict[str, Any]:
    index, k = store.get(arguments.index, "index"), arguments.k
    plain, memory = (opened(store, arguments.index, m) for m in ("none", f"external:k={k},temperature=20,lambda=0.5"))
    with open(arguments.lines, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in islice(file, arguments.count)]
    steps = None if memory.translator.memory is None else memory.translator.memory.search
    assert isinstance(steps, IndexSteps), "needs an index"
    ours, theirs = steps.index.searcher, read_index(index.file("index.faiss"))
    if isinstance(theirs, faiss.IndexIVF):
        theirs.nprobe = index.config["probe"]
    model, corpus = index.find("encoder").reference, index.find("datastore").input("corpus").reference
    similar = {
        number: opened(store, model, f"similar-pairs:pairs={number},k={k},temperature=20,lambda=0.5", corpus)
        for number in PAIRS
    }
    queries, search = list[np.ndarray](), ours.search

    def kept(some: np.ndarray, *more: Any) -> Any:
        queries.append(some)
        return search(some, *more)

    ours.search = kept  # type: ignore[method-assign]
    list(memory.translate(lines, attribute=False))
    ours.search = search  # type: ignore[method-assign]
    runs = {
        "plain": partial(translated, plain, lines),
        "kNN-MT": partial(translated, memory, lines),
        **{f"{n} similar pairs": partial(translated, one, lines) for n, one in similar.items()},
        "search": lambda: [search(some, k) for some in queries],
        "FAISS": lambda: [theirs.search(some, k) for some in queries],
    }
    times: dict[str, list[Seconds]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            times[name].append(timed(run)[0])
    seconds = {name: medians(some).cpu for name, some in times.items()}
    return {
        "keys": f"{ours.rows} x {ours.dim}",
        "lists": f"{index.config.get('probe')} of {index.config.get('lists')}",
        "sentences": len(lines),
        "searches": sum(map(len, queries)),
        "rows a step": round(float(np.mean([len(some) for some in queries])), 1),
        "seconds": {name: round(one, 3) for name, one in seconds.items()},
        "ratio": {name: round(one / seconds["plain"], 2) for name, one in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("--store", "--index", "--lines"):
        parser.add_argument(name, required=True)
    for name, number in (("--count", 128), ("--k", 16), ("--rounds", 3)):
        parser.add_argument(name, type=int, default=number)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    arguments = parser.parse_args()
    print(json.dumps(measure(Store(arguments.store), arguments), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
