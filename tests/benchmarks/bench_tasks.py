"""An update of a stream of tasks, beside plain fine-tuning of the same encoder in a minimal loop.

    python -m tests.benchmarks.bench_tasks [--methods seq replay …] [--layers 4 --width 128 \\
        --length 64 --rows 16]

Both read the same padded documents of 8 to 64 tokens with the same weights and AdamW; the minimal
loop does nothing else. They take turns, an update each, in one process; ratios are those of median
times (above 1: it takes longer), `cpu_ratio` of processor time, which other processes disturb less.
Updates with a draw are few, so a median is without.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from stages.examples.cutting import Cutting
from stages.examples.documents import Documents
from stages.examples.examples import Task
from stages.methods import METHODS
from stages.models.computing import resolve_device
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.reporting import Silent
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run
from tests.benchmarks.artificial import zipf
from tests.benchmarks.timing import times_in_turn

TYPES, LABELS, COUNT = 8192, 33, 4000


def documents(length: int) -> Documents:
    """Documents of one task, by Zipf's law."""
    random = np.random.default_rng(0)
    lengths = random.integers(8, length + 1, COUNT)
    split = {
        "ids": zipf(int(lengths.sum())) % TYPES,
        "doc_offsets": np.concatenate(([0], np.cumsum(lengths))),
        "labels": random.integers(0, LABELS, COUNT),
        "tasks": np.zeros(COUNT, np.int64),
    }
    return Documents.open(split, 0, Cutting("windows", length, length))


def minimal(config: TrainConfig, examples: Documents, device: torch.device) -> Callable[[], None]:
    """An update of plain fine-tuning."""
    model = LanguageModel(config.model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    order = iter(np.random.default_rng(1).permutation(COUNT * 10) % COUNT)

    def step() -> None:
        batch = examples.batch(np.array([next(order) for _ in range(config.batch_segments)])).to(
            device
        )
        F.cross_entropy(model.label_scores(batch), batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ours(
    config: TrainConfig, examples: Documents, device: torch.device, folder: Path
) -> Callable[[], None]:
    """An update of `Trainer`."""
    method = METHODS.load(config.method)(config.method_settings)
    model = LanguageModel(config.model)
    trainer = Trainer(
        Run(
            make_fabric(device),
            config,
            model,
            method,
            [Task("a", examples)],
            None,
            folder,
            Silent(),
            1e9,
        )
    )
    return trainer._update


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device, examples = resolve_device(arguments.device), documents(arguments.length)
    sizes = {
        "layers": arguments.layers,
        "width": arguments.width,
        "heads": 4,
        "ffn_width": 4 * arguments.width,
    }
    model = parse_model({**sizes, "dropout": 0.1}).sized(TYPES, arguments.length)
    with tempfile.TemporaryDirectory() as name:
        steps: dict[str, Callable[[], object]] = {}
        for method in ("minimal", *arguments.methods):
            settings = METHODS.settings("seq" if method == "minimal" else method)()
            config = TrainConfig(
                method=settings.method,
                memory=settings,
                model=model.model_copy(update={"head": settings.head(LABELS)}),
                segment_length=arguments.length,
                batch_tokens=arguments.rows * arguments.length,
                steps=1_000_000,
                valid_every=0,
                precision="fp32",
            )
            given = (config, examples, device)
            steps[method] = minimal(*given) if method == "minimal" else ours(*given, Path(name))
        taken = times_in_turn(steps, arguments.rounds)
    base = taken["minimal"]
    rows = {
        name: {
            "seconds": round(one.wall, 5),
            "ratio": round(one.wall / base.wall, 3),
            "cpu_ratio": round(one.cpu / base.cpu, 3),
        }
        for name, one in taken.items()
    }
    return {"rows": rows, "threads": torch.get_num_threads(), "device": str(device)}


def arguments_of(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {
        "layers": 4,
        "width": 128,
        "length": 64,
        "rows": 16,
        "rounds": 60,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--methods", nargs="+", default=["seq", "replay", "oml-er"])
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(given)


if __name__ == "__main__":
    print(json.dumps(measure(arguments_of()), indent=2))
