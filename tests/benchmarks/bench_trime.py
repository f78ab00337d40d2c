"""A step of training with in-batch memory against a plain one.

    python -m tests.benchmarks.bench_trime [--batch-tokens 4096 --segment-length 256 --precision fp32]

Models of the shape of `wikitext2-8x128` on tokens drawn by Zipf's law. The methods take turns, one step of
`Trainer` each, in one process; ratios are those of median times, `cpu_ratio` of processor time, which other
processes disturb less. All steps of a method read memory: there is no warm-up with the plain loss.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.methods import METHODS
from stages.methods.config import Batches
from stages.models.backbones.transformer.config import TransformerConfig
from stages.models.devices import resolve_device, tune_allocator
from stages.training.config import TrainConfig
from stages.training.progress import Splits
from tests.benchmarks.artificial import VOCABULARY, zipf
from tests.benchmarks.bench_training import our_steps
from tests.benchmarks.timing import times_in_turn

PLAIN = "lm"
METHODS_TIMED = ("trime", "trime-long", "trime-ext")


def configured(method: str, arguments: argparse.Namespace) -> TrainConfig:
    """A run of a method that never ends, validates or reads without memory."""
    model = TransformerConfig(
        vocab_size=VOCABULARY,
        layers=arguments.layers,
        width=arguments.width,
        heads=4,
        ffn_width=4 * arguments.width,
        max_positions=arguments.segment_length,
        dropout=0.1,
        cutoffs=[2000, 10000],
        factor=4,
    )
    batch = arguments.batch_tokens // arguments.segment_length
    memory = None if method == PLAIN else METHODS.settings(method)(warmup=0).sized(model, Batches(batch))
    return TrainConfig(
        method=method,
        memory=memory,
        model=model,
        segment_length=arguments.segment_length,
        batch_tokens=arguments.batch_tokens,
        clip_norm=1.0,
        steps=1_000_000,
        valid_every=0,
        precision=arguments.precision,
    )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = resolve_device(arguments.device)
    tune_allocator()
    torch.manual_seed(0)
    splits = Splits(zipf(arguments.batch_tokens * 20).astype(np.uint16), None, 0)
    with tempfile.TemporaryDirectory() as folder:
        steps = {
            method: our_steps(configured(method, arguments), splits, Path(folder), device)
            for method in (PLAIN, *arguments.methods)
        }
        taken = times_in_turn(steps, arguments.rounds)
    plain = taken[PLAIN]
    return {
        "plain_tokens_per_second": round(arguments.batch_tokens / plain.wall, 1),
        "ratio": {method: round(taken[method].wall / plain.wall, 3) for method in arguments.methods},
        "cpu_ratio": {method: round(taken[method].cpu / plain.cpu, 3) for method in arguments.methods},
        "batch_tokens": arguments.batch_tokens,
        "segment_length": arguments.segment_length,
        "precision": arguments.precision,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS_TIMED, default=METHODS_TIMED)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--segment-length", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
