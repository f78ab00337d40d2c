"""Translating with neighbours at every step, beside the model alone and beside the searches alone.

    python -m tests.benchmarks.bench_translate --store STORE --index INDEX --lines FILE [--count \\
        128 --k 16 --rounds 3]

The first lines of a file are translated in one process, in turn: `plain`, by the model of the
index; `kNN-MT`, with k neighbours, λ .5; both with one beam; `loop`, the simplest loop over the
same model that takes the best token, as long as the same translations; `similar pairs`, by the
tokens of 4 and of 16 pairs of the datastore's text; `search`, our searches of the run with four
beams alone; `FAISS`, its own search of the same queries, as many lists read. Told in processor
seconds, medians, for other work on the machine takes no part in them; ratios are to plain.
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
from stages.examples.batching import padded
from stages.generation.translate import LineTranslator, Translated, open_line_translator
from stages.inspection.settings import Request
from stages.retrieval.neighbors import IndexSteps
from stages.search.open import read_index
from stages.translation.settings import TranslationRequest
from stages.translation.translator import Translator
from tests.benchmarks.timing import Seconds, medians, timed

PAIRS = 4, 16


def opened(
    store: Store, source: str, memory: str, tokens: str | None = None, beam: int = 4
) -> LineTranslator:
    request = Request(source=source, memory=(memory,), tokens=tokens)
    return open_line_translator(request, store, TranslationRequest(beam=beam))


def translated(translator: LineTranslator, lines: list[str]) -> list[Translated]:
    return list(translator.translate(lines, attribute=False))


@torch.inference_mode()
def greedy_loop(translator: Translator, sources: list[np.ndarray]) -> list[list[int]]:
    """The best token at every step until all sentences have ended; those of alike length together,
    one state each.
    """
    decoder, out = translator.decoder, dict[int, list[int]]()
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for first in range(0, len(order), translator.batch):
        numbers = order[first : first + translator.batch]
        tokens, mask = map(
            torch.from_numpy, padded([sources[number] for number in numbers], decoder.eos)
        )
        state, written = (
            decoder.model.begin(tokens, mask),
            [torch.full((len(numbers),), decoder.start)],
        )
        longest = torch.tensor(
            [translator.settings.longest.of(sources[number]) for number in numbers]
        )
        ended = torch.zeros(len(numbers), dtype=torch.bool)
        while not ended.all():
            encoding = decoder.model.encode(written[-1][:, None], state)
            scores = decoder.model.log_probs(encoding.hidden[:, 0])
            scores[:, list(decoder.never)] = -torch.inf
            written.append(torch.where(ended, decoder.eos, scores.argmax(-1)))
            ended, state = (
                ended | (written[-1] == decoder.eos) | (len(written) > longest),
                encoding.state,
            )
        for number, row in zip(numbers, torch.stack(written[1:], 1).tolist(), strict=True):
            out[number] = row[: row.index(decoder.eos)] if decoder.eos in row else row
    return [out[number] for number in range(len(sources))]


def measure(store: Store, arguments: argparse.Namespace) -> dict[str, Any]:
    index, k = store.get(arguments.index, "index"), arguments.k
    external = f"external:k={k},temperature=20,lambda=0.5"
    (one, plain), (first, memory) = (
        [opened(store, arguments.index, name, beam=beam) for beam in (1, 4)]
        for name in ("none", external)
    )
    with open(arguments.lines, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in islice(file, arguments.count)]
    steps = None if memory.translator.memory is None else memory.translator.memory.search
    assert isinstance(steps, IndexSteps), "needs an index"
    ours, theirs = steps.index.searcher, read_index(index.file("index.faiss"))
    if isinstance(theirs, faiss.IndexIVF):
        theirs.nprobe = index.config["probe"]
    model, corpus = (
        index.find("encoder").reference,
        index.find("datastore").input("corpus").reference,
    )
    similar = {
        number: opened(
            store, model, f"similar-pairs:pairs={number},k={k},temperature=20,lambda=0.5", corpus
        )
        for number in PAIRS
    }
    queries, search = list[np.ndarray](), ours.search

    def kept(some: np.ndarray, *more: Any) -> Any:
        queries.append(some)
        return search(some, *more)

    ours.search = kept  # type: ignore[method-assign]
    list(memory.translate(lines, attribute=False))
    ours.search = search  # type: ignore[method-assign]
    sources = [np.array([*one.reader.text.ids(line), one.reader.text.eos]) for line in lines]
    greedy = one.translator.translate(sources)
    runs = {
        "loop": partial(greedy_loop, one.translator, sources),
        "plain, one beam": partial(translated, one, lines),
        "kNN-MT, one beam": partial(translated, first, lines),
        "plain": partial(translated, plain, lines),
        "kNN-MT": partial(translated, memory, lines),
        **{f"{n} similar pairs": partial(translated, some, lines) for n, some in similar.items()},
        "search": lambda: [search(some, k) for some in queries],
        "FAISS": lambda: [theirs.search(some, k) for some in queries],
    }
    times: dict[str, list[Seconds]] = {name: [] for name in runs}
    for number in range(1 + arguments.rounds):
        for name, run in runs.items():
            taken, _ = timed(run)
            if number:  # short vectors are made in the first round
                times[name].append(taken)
    seconds = {name: medians(some).cpu for name, some in times.items()}
    return {
        "keys": f"{ours.rows} x {ours.dim}",
        "lists": f"{index.config.get('probe')} of {index.config.get('lists')}",
        "sentences": len(lines),
        "searches": sum(map(len, queries)),
        "rows a step": round(float(np.mean([len(some) for some in queries])), 1),
        "the same by the loop": sum(
            a.tokens == b for a, b in zip(greedy, runs["loop"](), strict=True)
        ),
        "seconds": {name: round(taken, 3) for name, taken in seconds.items()},
        "ratio": {name: round(taken / seconds["plain"], 2) for name, taken in seconds.items()},
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
