"""The scripts that time training steps run, so that they do when somebody needs a figure."""

from pathlib import Path

import pytest

from tests.benchmarks import bench_steps, bench_training
from tests.benchmarks.profiling import shares

SIZES = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "segment-length": 8,
    "batch-tokens": 32,
    "rounds": 1,
    "device": "cpu",
}
TINY = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
STAND_IN = """
from dataclasses import dataclass
import torch
from torch import nn
@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool
class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.vocab_size, config.n_embd)
    def forward(self, x, y):
        scores = self.table(x) @ self.table.weight.T
        return scores, nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
    def configure_optimizers(self, decay, rate, betas, device):
        return torch.optim.AdamW(self.parameters(), rate, betas, weight_decay=decay)
"""


def test_a_step_stands_beside_those_it_is_compared_with() -> None:
    rows = bench_steps.measure(
        bench_steps.arguments_of([*TINY, "--rows", "transformer-xl spalm", "--profile"])
    )["rows"]
    to_transformer, to_lm, asked = rows.values()
    assert list(rows)[1:] == ["transformer-xl lm", "transformer-xl spalm"]
    assert min(asked[name] for name in ("tokens_per_second", "to_transformer", "to_lm")) > 0
    assert len(asked["profile"]) == 5
    assert (to_lm["to_lm"], to_transformer["to_transformer"]) == (1, 1)


@pytest.mark.parametrize("label", bench_steps.ROWS)
def test_every_row_can_be_configured(label: str) -> None:
    row, arguments = bench_steps.ROWS[label], bench_steps.arguments_of(TINY)
    config = bench_steps.configured(row, arguments)
    assert (config.method, config.model.backbone) == (row.method, row.backbone)
    assert (config.model.gate is not None) == (row.method == "spalm")


def test_training_stands_beside_the_products_of_a_step_and_nanogpt(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(STAND_IN)
    words = [*TINY, "--vocabulary", "50", "--precision", "bf16", "--nanogpt", str(tmp_path)]
    found = bench_training.measure(bench_training.arguments_of(words))
    rows = {name: found[name] for name in ("ours", "minimal", "nanogpt", "products")}
    assert (rows["products"]["of_floor"], rows["minimal"]["ratio"]) == (1, 1)
    assert all(row["tokens_per_second"] > 0 for row in rows.values())


def test_operations_are_put_together_by_the_beginning_of_their_names() -> None:
    taken = {"addmm": 3.0, "mm": 3.0, "add_": 2.0, "odd": 1.0, "odder": 1.0}
    groups = {"products": ("mm", "addmm"), "sums": ("add",)}
    assert shares(taken, groups) == {"products": 0.6, "sums": 0.2, "odd": 0.1, "odder": 0.1}
    assert shares(taken, groups, "else") == {"products": 0.6, "sums": 0.2, "else": 0.2}
