"""The sorting task of the ∞-former (Martins et al. 2022, section 4.1), at a quarter of its lengths.

    python -m tests.benchmarks.bench_sorting [--seeds 0 1 2 --models NAME … --updates 1500 --rounds 200]

A document is 1,000, 2,000 or 4,000 tokens of 20 types whose frequencies shift, a separator and all types by falling
count; asked are these. Two layers of width 64 read it in segments of 128 with as many cached positions. They learn to
sort on documents of one segment first, so many updates of 32, and then on documents of all three lengths in turn, so
many rounds; weights change where something is asked, in the last segment. `counting N` is who counts the last N tokens,
384 are what two layers with a cache reach. A guess among the types that are left is right for .18. A line a
model and a seed: shares of right answers by length, and seconds of processor time of the training.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import chain, islice, product
from typing import Any

from stages.models.config import parse_model
from stages.models.devices import tune_allocator
from tests.stages.models.layers.made_tasks import Task, accuracy, batches_of, learned, sorted_by_counting, sorting

TYPES, SEGMENT, ROWS, TESTED = 20, 128, 32, 256
LENGTHS = (1000, 2000, 4000)
SHAPE = {"backbone": "transformer-xl", "width": 64, "layers": 2, "heads": 4, "ffn_width": 128, "dropout": 0.0}
SIGNAL = {"name": "infinity", "basis": 128, "samples": 128, "contraction": 0.75, "deviation": 0.05, "kl": 1e-6}
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {},
    "compressive-mean": {"attention": {"name": "compressive", "compressed_length": 256, "compression": "mean"}},
    "infinity-even": {"attention": SIGNAL | {"sticky": False}},
    "infinity-sticky": {"attention": SIGNAL},
}


def documents(length: int, number: int, seed: int) -> Task:
    return sorting(ROWS * number, TYPES, length, seed)


def growing(updates: int, rounds: int, lengths: tuple[int, ...], seed: int) -> Iterator[Task]:
    """Batches of documents of one segment, then of each length in turn."""
    short = batches_of(documents(SEGMENT - TYPES - 1, updates, seed), ROWS, seed)
    longer = [batches_of(documents(length, rounds, seed + at), ROWS, seed) for at, length in enumerate(lengths, 1)]
    turns = chain.from_iterable(zip(*longer, strict=True))
    return chain(islice(short, updates), turns)


def segments(length: int) -> int:
    return -(-(length + TYPES) // SEGMENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1500, help="on documents of one segment")
    parser.add_argument("--rounds", type=int, default=200, help="over documents of each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    tune_allocator()
    lengths = tuple(given.lengths)
    tests = {length: sorting(TESTED, TYPES, length, length) for length in lengths}
    for last in (128, 256, 384, 512, *lengths):
        right = {
            length: round(float(sorted_by_counting(test, TYPES, last).float().mean()), 3)
            for length, test in tests.items()
        }
        print(json.dumps({"counting": last, "right": right}), flush=True)
    for seed, name in product(given.seeds, given.models):
        config = parse_model({**SHAPE, "memory_length": SEGMENT, **MODELS[name]}).sized(TYPES + 1, SEGMENT)
        batches = growing(given.updates, given.rounds, lengths, 10 * seed)
        steps = given.updates + given.rounds * sum(segments(length) for length in lengths)
        started = time.process_time()
        model = learned(config, batches, steps, given.lr, SEGMENT, seed)
        took = round(time.process_time() - started)
        right = {length: round(accuracy(model, test), 3) for length, test in tests.items()}
        print(json.dumps({"model": name, "seed": seed, "right": right, "seconds": took}), flush=True)


if __name__ == "__main__":
    main()
