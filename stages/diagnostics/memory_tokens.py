"""Probe of memory tokens: the positions that they attend to, and the tokens that attend to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, HeatMap, Share, Side
from stages.diagnostics.probe import LayerProbe, LayerWatch, Sums
from stages.models.backbones.stream_configs import MemoryTransformerConfig
from stages.models.config import BackboneConfig

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.probe import ScoredBlock

PARTS = 16
"""Number of equal parts of a segment, and of the positions before it, whose attention is reported separately."""


def _map(name: str, split: str, values: list[list[float]], rows: list[str], columns: list[str], title: str) -> Chart:
    largest = max(max(row) for row in values) or 1.0
    across = "positions before a segment, the oldest first" if "before" in columns[-1] else "place in the segment"
    return Chart(
        f"memory-tokens-{name}",
        f"{title}, on {split}",
        f"Shares of attention, means over heads and scored tokens; the darkest is {largest:.1%}.",
        HeatMap(
            [[value / largest for value in column] for column in zip(*values, strict=True)],
            Side(across, columns, turned=True),
            Side("memory tokens", rows),
            Share("none", f"{largest:.1%}"),
        ),
    )


class TokensWatch(LayerWatch):
    """Sums the attention of tokens, by their place in the segment, and the attention of memory tokens."""

    def see(self, block: ScoredBlock) -> None:
        import torch

        to_memory = []
        for number, calls in self.calls():
            layer = self.layers[number]
            m = layer.memory_tokens
            looked = self.by_token(block, calls).double().cpu()
            place, given, reads = looked.tensor_split((1, m + 2), 1)
            by_place = torch.zeros(PARTS, m + 1, dtype=torch.float64).index_add_(0, place[:, 0].long(), given)
            self.add(number, given=by_place, places=torch.bincount(place[:, 0].long(), minlength=PARTS))
            if layer.writes:
                self.add(number, reads=reads.sum(0).view(m, -1))
            to_memory.append(given[:, :m].sum(1).float())
        self.mean_column("memory_tokens_attention", to_memory)

    def look(self, module: Any, given: Any, output: Any) -> Tensor:
        """A row for each position: its part of the segment, attention to memory tokens and to E, attention of memory.

        Shape [B, n, 1 + m + 1 + m (1 + PARTS)], means over heads.
        """
        import torch

        past, x, passage, _ = given
        m = module.memory_tokens
        with torch.no_grad():
            rows, tokens = x.tensor_split((m,), 1)
            seen = output[0][:, :m] if module.bottleneck else rows
            shares = module.token_attention(past, seen, tokens, passage).weights.mean(0)
            batch, n = len(x), tokens.shape[1]
            cached = shares[:, :, m : shares.shape[2] - passage.place - n].sum(2, keepdim=True)
            reads = x.new_zeros(batch, m, 1 + PARTS)
            if module.writes:
                attended = module.memory_attention(past, rows, passage).weights.mean(0)
                parts = [attended[:, :, :m], *attended[:, :, m:].tensor_split(PARTS, 2)]
                reads = torch.stack([part.sum(2) for part in parts], 2)
            length: Any = self.model.backbone.length
            place = (passage.place + torch.arange(n, device=x.device)) * PARTS // length
            columns = (place.expand(batch, n)[:, :, None], shares[:, :, :m], cached)
            return torch.cat((*columns, reads.flatten(1)[:, None].expand(-1, n, -1)), 2)


@dataclass(frozen=True)
class MemoryTokensProbe(LayerProbe):
    """Probe of models with memory tokens."""

    name: ClassVar[str] = "memory_tokens"
    layer: ClassVar[str] = "stages.models.backbones.memory_transformer:Block"
    watching: ClassVar[type[LayerWatch]] = TokensWatch
    columns: ClassVar[tuple[str, ...]] = ("memory_tokens_attention",)

    @classmethod
    def blocks_of(cls, model: BackboneConfig) -> tuple[int, ...]:
        if isinstance(model, MemoryTransformerConfig) and model.memory_tokens:
            return tuple(range(1, model.layers + 1))
        return ()

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Shares of attention, means over heads and scored tokens."""
        to_memory, cached = sums["given"][:, :-1], sums["given"][:, -1].sum()
        return {
            "memory": float(to_memory.sum()) / tokens,
            "cached": float(cached) / tokens,
            "segment": 1 - float(to_memory.sum() + cached) / tokens,
            # [m, PARTS]: attention of the tokens in each part of their segment; 0 if none was scored.
            "read_by": (to_memory / np.maximum(sums["places"], 1)[:, None]).T.tolist(),
            # [m, 1 + PARTS]: attention to memory tokens, then to parts of the cached positions.
            "reads": (sums["reads"] / tokens).tolist() if "reads" in sums else None,
        }

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`memory tokens: 12.1% of attention in block 1, 20.3% in block 2`."""
        shares = ", ".join(f"{one['memory']:.1%} of attention in block {one['block']}" for one in metrics["blocks"])
        return f"memory tokens: {shares}"

    @classmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        """Two maps for each block: attention of memory to text, which writes, and of text to memory, which reads."""
        own = [f"segment {n}" for n in range(1, PARTS + 1)]
        before = ["memory", *(f"before {n}" for n in range(1, PARTS + 1))]
        charts = []
        for one in blocks:
            number, rows = one["block"], [f"memory {n}" for n in range(1, len(one["read_by"]) + 1)]
            if one["reads"] is not None:
                title = f"Where memory of block {number} looks"
                charts.append(_map(f"{number}-reads", split, one["reads"], rows, before, title))
            charts.append(
                _map(f"{number}-read", split, one["read_by"], rows, own, f"Who looks at it in block {number}")
            )
        return charts
