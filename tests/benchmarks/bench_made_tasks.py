"""What memories of layers are good for: made tasks with known chance levels, learnt and answered.

    python -m tests.benchmarks.bench_made_tasks [--task beginnings --length 1024 --updates 2000 --models NAME …]

Two layers of width 64 read streams in segments of 64, with as many cached positions. `commoner`: which of two types was
the commoner since the stream began, asked after each segment; scored are the questions of the last quarter, and
`counting N` is how often plain counting of the last N tokens is right: N = 192 is what a Transformer-XL of this kind
reaches. `beginnings`: which of 8 names stood in the first segment. A line a model and a seed: its share of right
answers, and the processor time of an update as a multiple of the first model's. An update is a segment of 32 streams,
with a change of weights where something is asked.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stages.models.config import BackboneConfig, parse_model
from stages.models.devices import tune_allocator
from tests.stages.models.layers.made_tasks import (
    Task,
    accuracy,
    batches_of,
    beginnings,
    commoner,
    counting,
    learned,
)

SEGMENT, TYPES, ROWS = 64, 20, 32
SIGNAL = {"name": "infinity", "basis": 64, "samples": 64, "widths": (0.02, 0.05), "contraction": 0.75}
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {},
    "transformer-xl-320": {"mem_length": 320},
    "compressive-mean": {"attention": {"name": "compressive", "long_length": 256, "compression": "mean"}},
    "compressive-conv": {"attention": {"name": "compressive", "long_length": 256}},
    "memorizing": {"attention": {"name": "memorizing", "long_length": 1024, "layers": [2]}},
    "infinity-even": {"attention": SIGNAL | {"sticky": False}},
    "infinity-sticky": {"attention": SIGNAL},
}


class Made(NamedTuple):
    """Streams to learn from and to be asked about, token types, and which questions count."""

    train: Task
    test: Task
    types: int
    counted: Tensor


def made(task: str, length: int, updates: int, segment: int) -> Made:
    """Enough streams for every update to have its own, up to 2,048."""
    rows = min(2048, ROWS * max(1, -(-updates * segment // length)))
    if task == "beginnings":
        train, test = (beginnings(n, 8, length + 1, segment, seed) for n, seed in ((rows, 1), (256, 2)))
        return Made(train, test, 17, test.asked)
    train, test = (commoner(n, TYPES, length, segment, seed) for n, seed in ((rows, 1), (128, 2)))
    late = torch.arange(length) >= length * 3 // 4
    return Made(train, test, TYPES + 1, test.asked & late)


def model(changes: dict[str, Any], types: int, segment: int) -> BackboneConfig:
    sizes = {"width": 64, "layers": 2, "heads": 4, "ffn_width": 128, "dropout": 0.0, "mem_length": segment}
    return parse_model({"backbone": "transformer-xl", **sizes, **changes}).sized(types, segment)


def by_counting(data: Made, length: int, segment: int) -> Iterator[dict[str, float]]:
    """How often those are right that count the last tokens, ever more of them."""
    late = data.counted[data.test.asked]
    for last in sorted({segment, 3 * segment, min(8 * segment, length), length}):
        yield {"counting": last, "right": round(float(counting(data.test, TYPES, last)[late].mean()), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("commoner", "beginnings"), default="commoner")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a stream")
    parser.add_argument("--segment", type=int, default=SEGMENT, help="tokens of a segment, and cached positions")
    parser.add_argument("--updates", type=int, default=2000, help="of 32 segments each")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the weights, and of the streams' order")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    arguments = parser.parse_args()
    tune_allocator()
    segment, first = arguments.segment, None
    data = made(arguments.task, arguments.length, arguments.updates, segment)
    if arguments.task == "commoner":
        for line in by_counting(data, arguments.length, segment):
            print(json.dumps(line), flush=True)
    for seed, name in product(arguments.seeds, arguments.models):
        started, batches = time.process_time(), batches_of(data.train, ROWS, 3 + seed)
        config = model(MODELS[name], data.types, segment)
        network = learned(config, batches, arguments.updates, arguments.lr, segment, seed)
        took = time.process_time() - started
        first = first or took
        right = round(accuracy(network, data.test, data.counted), 3)
        print(json.dumps({"model": name, "seed": seed, "right": right, "time": round(took / first, 2)}), flush=True)


if __name__ == "__main__":
    main()
