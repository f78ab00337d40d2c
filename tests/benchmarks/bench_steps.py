"""A training step of every method and backbone, beside a plain Transformer of the same attention
span.

    python -m tests.benchmarks.bench_steps [--rows "transformer trime" "transformer-xl lm" …] \\
        [--profile]
        [--layers 8 --width 128 --segment-length 256 --batch-tokens 4096 --precision fp32]

All models of one shape, vocabulary adaptive, on tokens and neighbours drawn by Zipf's law. They
take turns, one step of `Trainer` each, in one process; ratios are those of median times (above 1:
it takes longer), `cpu_ratio` of processor time, which other processes disturb less.
`to_transformer` compares with method lm on the Transformer whose positions reach back as far: twice
a segment where a Transformer-XL caches one, which is the row `transformer lm, two segments`;
`to_lm` compares with lm on the same backbone. Steps of TRIME all read memory: there is no warm-up
with the plain loss. SPALM reads the tokens of its neighbours from a memory-mapped file, as a real
run does; `memory-decoder` has labels of `--labels` neighbours. With --profile the five kinds of
operations that take the largest parts of a step, by torch's profiler.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stages.methods import METHODS
from stages.methods.config import Batches, MethodSettings
from stages.methods.method import SideInputs
from stages.methods.neighbor_labels import RankedNeighbors, neighbor_labels
from stages.models.computing import resolve_device, tune_allocator
from stages.models.config import parse_model
from stages.training.config import TrainConfig
from stages.training.training_data import mapped
from tests.benchmarks.artificial import VOCABULARY, zipf
from tests.benchmarks.bench_training import our_steps
from tests.benchmarks.profiling import GROUPS, own_times, shares
from tests.benchmarks.timing import Seconds, times_in_turn
from tests.stages.training.runs import Splits

BATCHES = 20
"""That the tokens are enough for."""
PROFILED = 3
"""Steps under the profiler."""
LARGEST = 5
"""Kinds of operations that are shown."""


class Row(NamedTuple):
    """What is trained; its segments may be longer than the others'."""

    backbone: str
    method: str = "lm"
    segments: int = 1

    @property
    def plain(self) -> str:
        """The row of method lm on the Transformer whose positions reach back as far."""
        return LONG if self.backbone == "transformer-xl" or self.segments > 1 else SHORT

    @property
    def lm(self) -> str:
        """The row of method lm on the same backbone, with segments as long."""
        return LONG if self.segments > 1 else f"{self.backbone} lm"


SHORT, LONG = "transformer lm", "transformer lm, two segments"
BACKBONES = ("transformer", "transformer-xl", "lstm")
ALL_METHODS = ("lm", "trime", "trime-long", "trime-ext", "spalm", "memory-decoder")
WITHOUT_WARMUP = ("spalm", "memory-decoder")
ROWS = {
    LONG: Row("transformer", segments=2),
    **{
        f"{backbone} {method}": Row(backbone, method)
        for backbone in BACKBONES
        for method in ALL_METHODS
    },
}


def configured(row: Row, arguments: argparse.Namespace) -> TrainConfig:
    """A run that never ends, validates or reads without memory."""
    length = row.segments * arguments.segment_length
    sizes: dict[str, Any] = {"layers": arguments.layers, "width": arguments.width, "dropout": 0.1}
    if row.backbone != "lstm":
        sizes |= {"heads": arguments.heads, "ffn_width": 4 * arguments.width}
    vocabulary = {"vocab_size": VOCABULARY, "cutoffs": [2000, 10000], "factor": 4}
    model = parse_model({"backbone": row.backbone, **sizes, **vocabulary})
    memory = settings(row.method, arguments)
    if memory is not None:
        nothing: Any = None  # a method for text reads no figures of tokens
        model = memory.extend_model(model, nothing)
    model = model.sized(VOCABULARY, length)
    return TrainConfig(
        method=row.method,
        memory=None
        if memory is None
        else memory.complete(model, Batches(arguments.batch_tokens // length)),
        model=model,
        segment_length=length,
        batch_tokens=arguments.batch_tokens,
        clip_norm=1.0,
        steps=1_000_000,
        valid_every=0,
        precision=arguments.precision,
    )


def settings(method: str, arguments: argparse.Namespace) -> MethodSettings | None:
    """Of a method that has some."""
    if method == "lm":
        return None
    given = {} if method in WITHOUT_WARMUP else {"warmup": 0}
    if method == "spalm":
        given = {"k": arguments.k}
    found: MethodSettings = METHODS.settings(method)(**given)
    return found


def neighbors(tokens: np.ndarray, k: int, folder: Path) -> SideInputs:
    """For each token k others, one in ten missing."""
    random = np.random.default_rng(1)
    drawn = random.choice(tokens, (len(tokens), k)).astype(np.int32)
    drawn[random.random(drawn.shape) < 0.1] = -1
    file = mapped(
        folder / "neighbors.npy", drawn.shape, drawn.dtype, lambda start, stop: drawn[start:stop]
    )
    return {"neighbors": {"train": file}}


def labels(tokens: np.ndarray, count: int) -> SideInputs:
    """For each token a distribution over the tokens of as many others, all equally near."""
    drawn = np.random.default_rng(2).choice(tokens, (len(tokens), count)).astype(np.int32)
    return {"soft-labels": neighbor_labels(RankedNeighbors(drawn, np.zeros(drawn.shape)), 1.0)}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = resolve_device(arguments.device)
    tune_allocator()
    torch.manual_seed(0)
    tokens = zipf(arguments.batch_tokens * BATCHES).astype(np.uint16)
    chosen = with_compared(arguments.rows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        splits = Splits(tokens, None, 0)
        side_inputs = {
            **neighbors(tokens, arguments.k, folder),
            **labels(tokens, arguments.labels),
        }
        steps = {
            label: our_steps(
                configured(ROWS[label], arguments), splits, folder, device, side_inputs
            )
            for label in chosen
        }
        taken = times_in_turn(steps, arguments.rounds)
        rows = {label: compared(label, taken, arguments.batch_tokens) for label in chosen}
        for label in arguments.rows if arguments.profile else ():
            found = shares(own_times(steps[label], PROFILED), GROUPS)
            rows[label]["profile"] = {
                kind: round(share, 3) for kind, share in list(found.items())[:LARGEST]
            }
    shape = {
        name: getattr(arguments, name)
        for name in ("layers", "width", "heads", "segment_length", "batch_tokens")
    }
    where = {
        "precision": arguments.precision,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    return {"rows": rows, **shape, "k": arguments.k, **where}


def with_compared(labels: list[str]) -> list[str]:
    """The rows that are asked for, after those that they are compared with."""
    needed = [other for label in labels for other in (ROWS[label].plain, ROWS[label].lm)]
    return list(dict.fromkeys([*needed, *labels]))


def compared(label: str, taken: dict[str, Seconds], tokens: int) -> dict[str, Any]:
    """Of one row, beside the two that it is compared with."""
    own, row = taken[label], ROWS[label]
    plain, same = taken[row.plain], taken[row.lm]
    return {
        "tokens_per_second": round(tokens / own.wall, 1),
        "to_transformer": round(own.wall / plain.wall, 3),
        "to_transformer_cpu": round(own.cpu / plain.cpu, 3),
        "to_lm": round(own.wall / same.wall, 3),
        "to_lm_cpu": round(own.cpu / same.cpu, 3),
    }


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    names = list(ROWS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names)
    )
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--segment-length", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4, help="neighbours that SPALM reads")
    parser.add_argument("--labels", type=int, default=256, help="neighbours that give soft labels")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args(words)


def main() -> None:
    print(json.dumps(measure(arguments_of()), indent=1))


if __name__ == "__main__":
    main()
