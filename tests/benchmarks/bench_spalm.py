"""A step of SPALM with precomputed neighbours against one of the same model without them.

    python -m tests.benchmarks.bench_spalm [--k 4 --gate vector --backbone transformer-xl --precision fp32]

Models of the shape of `wikitext2-8x128` on tokens and neighbours drawn by Zipf's law. The plain model and
SPALM take turns, one step of `Trainer` each, in one process; the ratio is that of median times, `cpu_ratio` of
processor time, which other processes disturb less. A step contains all that SPALM adds: the neighbours' tokens
are read from a memory-mapped file, as in a real run.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.methods.method import SideInputs
from stages.methods.spalm.config import SpalmConfig
from stages.models.config import parse_model
from stages.models.devices import resolve_device, tune_allocator
from stages.training.config import TrainConfig
from stages.training.mapped import mapped
from stages.training.progress import Splits
from tests.benchmarks.artificial import VOCABULARY, zipf
from tests.benchmarks.bench_training import our_steps
from tests.benchmarks.timing import times_in_turn

STEPS = 20
"""Batches that the tokens are enough for."""


def configured(arguments: argparse.Namespace, gate: str | None) -> TrainConfig:
    """A run that never ends or validates; with a gate, of method spalm."""
    shape = {"layers": 8, "width": 128, "heads": 4, "ffn_width": 512}
    vocabulary = {"vocab_size": VOCABULARY, "cutoffs": [2000, 10000], "factor": 4}
    model = parse_model({"backbone": arguments.backbone, "gate": gate} | shape | vocabulary)
    return TrainConfig(
        method="spalm" if gate else "lm",
        memory=SpalmConfig(k=arguments.k) if gate else None,
        model=model.sized(VOCABULARY, arguments.segment_length),
        segment_length=arguments.segment_length,
        batch_tokens=arguments.batch_tokens,
        clip_norm=1.0,
        steps=1_000_000,
        valid_every=0,
        precision=arguments.precision,
    )


def neighbors(tokens: np.ndarray, k: int, folder: Path) -> SideInputs:
    """For each token k others, one in ten missing."""
    random = np.random.default_rng(1)
    drawn = random.choice(tokens, (len(tokens), k)).astype(np.int32)
    drawn[random.random(drawn.shape) < 0.1] = -1
    file = mapped(folder / "neighbors.npy", drawn.shape, drawn.dtype, lambda start, stop: drawn[start:stop])
    return SideInputs(neighbor_tokens={"train": file})


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = resolve_device(arguments.device)
    tune_allocator()
    torch.manual_seed(0)
    tokens = zipf(arguments.batch_tokens * STEPS).astype(np.uint16)
    splits = Splits(tokens, None, 0)
    with tempfile.TemporaryDirectory() as name:
        side_inputs = neighbors(tokens, arguments.k, Path(name))
        taken = times_in_turn(
            {
                "plain": our_steps(configured(arguments, None), splits, Path(name), device),
                "spalm": our_steps(configured(arguments, arguments.gate), splits, Path(name), device, side_inputs),
            },
            arguments.rounds,
        )
    plain, spalm = taken["plain"], taken["spalm"]
    return {
        "plain_tokens_per_second": round(arguments.batch_tokens / plain.wall, 1),
        "ratio": round(spalm.wall / plain.wall, 3),
        "cpu_ratio": round(spalm.cpu / plain.cpu, 3),
        "backbone": arguments.backbone,
        "k": arguments.k,
        "gate": arguments.gate,
        "batch_tokens": arguments.batch_tokens,
        "segment_length": arguments.segment_length,
        "precision": arguments.precision,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--gate", choices=("vector", "scalar"), default="vector")
    parser.add_argument("--backbone", choices=("transformer", "transformer-xl"), default="transformer-xl")
    parser.add_argument("--segment-length", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
