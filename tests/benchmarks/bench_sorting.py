"""The sorting task of the ∞-former (Martins et al. 2022, section 4.1), at a quarter of its lengths.

    python -m tests.benchmarks.bench_sorting [--seeds 0 1 2 --models NAME …]
    python -m tests.benchmarks.bench_sorting --updates 400 100 50

A document is 1,000, 2,000 or 4,000 tokens of 20 types whose frequencies shift, a separator and all types by falling
count; asked are these. Two layers of width 64 read it in segments of 128 with as many cached positions. A
Transformer-XL learns to sort on documents of one segment, 1,500 batches of 32. From its weights each model goes on,
with new ones for its memory, on so many batches of each length, the shortest first; weights change where something is
asked, in the last segments. Lines: who counts the last N tokens, where 384 are what two layers with a cache reach; then
of each model and seed the shares of right answers by length and the seconds of processor time of going on. A guess
among the types that are left is right for .18.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from torch import Tensor

from stages.models.config import BackboneConfig, parse_model
from stages.models.devices import tune_allocator
from tests.stages.models.layers.made_tasks import Task, accuracy, batches_of, learned, sorted_by_counting, sorting

TYPES, SEGMENT, ROWS, TESTED = 20, 128, 32, 256
LENGTHS = (1000, 2000, 4000)
SIGNAL = {"name": "infinity", "basis": 128, "samples": 128, "contraction": 0.75, "deviation": 0.05, "kl": 1e-6}
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {},
    "compressive-mean": {"attention": {"name": "compressive", "long_length": 256, "compression": "mean"}},
    "infinity-even": {"attention": SIGNAL | {"sticky": False}},
    "infinity-sticky": {"attention": SIGNAL},
}


def shaped(changes: Mapping[str, Any]) -> BackboneConfig:
    sizes = {"width": 64, "layers": 2, "heads": 4, "ffn_width": 128, "dropout": 0.0, "mem_length": SEGMENT}
    return parse_model({"backbone": "transformer-xl", **sizes, **changes}).sized(TYPES + 1, SEGMENT)


def documents(length: int, batches: int, seed: int) -> Iterator[Task]:
    return islice(batches_of(sorting(ROWS * batches, TYPES, length, seed), ROWS, seed), batches)


def segments(length: int) -> int:
    """Those that a document takes, whose last token predicts nothing."""
    return -(-(length + TYPES) // SEGMENT)


def sorts_one_segment(batches: int, lr: float, seed: int) -> dict[str, Tensor]:
    """Weights of a Transformer-XL that has learnt to sort documents of one segment."""
    own = documents(SEGMENT - TYPES - 1, batches, seed)
    return learned(shaped(MODELS["transformer-xl"]), own, batches, lr, SEGMENT, seed).state_dict()


def named_within(weights: Mapping[str, Tensor], changes: Mapping[str, Any]) -> dict[str, Tensor]:
    """The same weights as those of the local attention of a layer with another memory."""
    place = ".attention.relative." if changes else ".attention."
    return {name.replace(".attention.", place): weight for name, weight in weights.items()}


def growing(lengths: Sequence[int], updates: Sequence[int], seed: int) -> Iterator[Task]:
    """So many batches of documents of each length, one length after the other."""
    return chain.from_iterable(
        documents(length, number, seed + at)
        for at, (length, number) in enumerate(zip(lengths, updates, strict=True), 1)
    )


def rounded(shares: Mapping[int, float]) -> dict[int, float]:
    return {length: round(share, 3) for length, share in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", type=int, default=1500, help="batches of documents of one segment")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--updates", type=int, nargs="+", default=(300, 60, 30), help="batches of each of LENGTHS")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    tune_allocator()
    tests = {length: sorting(TESTED, TYPES, length, length) for length in given.lengths}
    for last in (128, 256, 384, 512, *given.lengths):
        right = {
            at: round(float(sorted_by_counting(test, TYPES, last).float().mean()), 3) for at, test in tests.items()
        }
        print(json.dumps({"counting": last, "right": right}), flush=True)
    steps = sum(segments(length) * number for length, number in zip(given.lengths, given.updates, strict=True))
    for seed in given.seeds:
        begun = sorts_one_segment(given.begin, given.lr, 10 * seed)
        for name in given.models:
            batches, started = growing(given.lengths, given.updates, 10 * seed), time.process_time()
            own = named_within(begun, MODELS[name])
            model = learned(shaped(MODELS[name]), batches, steps, given.lr, SEGMENT, seed, own)
            took = round(time.process_time() - started)
            right = rounded({length: accuracy(model, test) for length, test in tests.items()})
            print(json.dumps({"model": name, "seed": seed, "right": right, "seconds": took}), flush=True)


if __name__ == "__main__":
    main()
