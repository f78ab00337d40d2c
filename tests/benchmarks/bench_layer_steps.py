"""What an update takes of models whose layers remember, beside a Transformer-XL of the same shape,
and where it goes.

    python -m tests.benchmarks.bench_layer_steps [--width 256 --layers 4 --rounds 7 --models NAME …]

Segments and caches of 256 positions, batches of four, one thread; byte vocabulary, so that the
blocks are what is timed. An update is forward, backward and AdamW, once memories are full. A row of
the table: the median of processor times, as a multiple of the Transformer-XL's, models in turn;
weights, and bytes that a stream carries; and the shares of a profiled update that matrix products,
the search for the best entries (top k), gathering and scattering, softmax, and all else take of its
operations' own time.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stages.methods.method import ParameterGroup
from stages.models.backbone import State
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.training.config import OptimizerConfig
from stages.training.optimizer import make_optimizer, split_groups
from tests.benchmarks.profiling import own_times, shares

LENGTH, ROWS, TYPES = 256, 4, 257
KINDS = {
    "products": ("mm", "addmm", "bmm", "baddbmm", "convolution", "scaled_dot"),
    "top k": ("topk", "sort"),
    "gather": ("gather", "scatter", "index", "embedding"),
    "softmax": ("softmax",),
}


def memorizing(size: int) -> dict[str, Any]:
    return {"attention": {"name": "memorizing", "layers": [3], "long_length": size}}


MODELS: dict[str, dict[str, Any]] = {
    "Transformer-XL": {},
    "Transformer-XL, M = 512": {"mem_length": 512},
    "Compressive, C = 256": {"attention": {"name": "compressive", "long_length": 256}},
    **{
        f"Memorizing, block 3, N = {size:,}": memorizing(size)
        for size in (0, 512, 2048, 8192, 32768, 65536, 131072)
    },
    "∞-former, N = S = 128": {"attention": {"name": "infinity"}},
    "∞-former, even": {"attention": {"name": "infinity", "sticky": False}},
    "hashed n-grams, block 1": {"lookup": {"name": "hashed-ngrams", "layers": [1]}},
    "Memory+ 128², blocks 1, 2, 3": {"feed_forward": {"name": "memory-plus"}},
    "product keys 128², block 3": {"feed_forward": {"name": "product-keys", "layers": [3]}},
    "product keys 512², block 3": {
        "feed_forward": {"name": "product-keys", "layers": [3], "sub_keys": 512}
    },
}


@dataclass
class Timed:
    """A model that reads one stream after another, with full memories."""

    model: LanguageModel
    optimizer: torch.optim.Optimizer
    state: State
    tokens: Tensor
    back: Tensor | None
    """How far back the document of each position reaches, where memories end with documents: to all
    of them.
    """

    def update(self) -> None:
        encoding = self.model.encode(self.tokens, self.state, self.back)
        loss = self.model.loss(encoding.hidden.flatten(0, 1), self.tokens.flatten())
        if encoding.auxiliary_loss is not None:
            loss = loss + encoding.auxiliary_loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def seconds(self) -> float:
        began = time.process_time()
        self.update()
        return time.process_time() - began

    def shares(self) -> dict[str, float]:
        """Of each kind of operation, of the time that all spend in themselves."""
        found = shares(own_times(self.update), KINDS, "else")
        return {kind: found.get(kind, 0.0) for kind in (*KINDS, "else")}


def ready(changes: dict[str, Any], width: int, layers: int) -> Timed:
    """A model whose memories are full: of entries as many random ones, of all else what some
    segments leave.
    """
    torch.manual_seed(0)
    sizes = {"width": width, "layers": layers, "heads": 4, "ffn_width": 4 * width, "dropout": 0.0}
    config = parse_model({"backbone": "transformer-xl", "mem_length": LENGTH, **sizes, **changes})
    model = LanguageModel(config.sized(TYPES, LENGTH)).train()
    optimizer = make_optimizer(
        OptimizerConfig(), split_groups([ParameterGroup(list(model.parameters()))], model)
    )
    tokens, state = torch.randint(TYPES, (ROWS, LENGTH)), None
    back = torch.full(tokens.shape, 1 << 30) if model.config.reads.documents else None
    with torch.no_grad():
        for _ in range(6):
            state = model.encode(tokens, state, back).state
    assert state is not None
    if size := changes.get("attention", {}).get("long_length"):
        entries = torch.nn.functional.normalize(torch.randn(ROWS, 4, size, width // 4), dim=-1)
        state = {**state} | {
            name: entries.clone() for name in state if name.endswith((".keys", ".values"))
        }
    timed = Timed(model, optimizer, state, tokens, back)
    timed.update()
    return timed


def rows(models: dict[str, Timed], rounds: int) -> Iterator[str]:
    """Lines of a table in Markdown."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, timed in models.items():
            times[name].append(timed.seconds())
    base = statistics.median(times[next(iter(models))])
    kinds = (*KINDS, "else")
    yield f"| | update | weights | state, KiB | {' | '.join(kinds)} |"
    yield f"|{'---|' * (4 + len(kinds))}"
    for name, timed in models.items():
        config = timed.model.config
        state = config.state_bytes(LENGTH) / 1024
        weights = sum(parameter.numel() for parameter in timed.model.parameters())
        shares = timed.shares()
        cells = (
            f"{statistics.median(times[name]) / base:.2f}",
            f"{weights / 1e6:.1f}M",
            f"{state:,.0f}",
        )
        yield f"| {name} | {' | '.join((*cells, *(f'{shares[kind]:.0%}' for kind in kinds)))} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: ready(MODELS[name], given.width, given.layers) for name in given.models}
    print("\n".join(rows(models, given.rounds)))


if __name__ == "__main__":
    main()
