"""Probe of memory tokens: the positions that they attend to, and the tokens that attend to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, HeatMap, Share, Side
from stages.diagnostics.probe import Figures, LayerProbe, LayerWatch, Sums
from stages.models.backbones.stream_configs import MemoryTransformerConfig
from stages.models.config import BackboneConfig

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.probe import ScoredBlock

PARTS = 16
"""Number of equal parts of a segment, and of the positions before it, whose attention is reported
separately.
"""


class MemoryTokensProbe(LayerProbe):
    """Probe of the attention of tokens, by their place in the segment, and of the attention of
    memory tokens.
    """

    name: ClassVar[str] = "memory_tokens"
    layer: ClassVar[str] = "stages.models.backbones.memory_transformer:MemoryBlock"
    columns: ClassVar[tuple[str, ...]] = ("memory_tokens_attention",)

    @classmethod
    def blocks_of(cls, model: BackboneConfig) -> tuple[int, ...]:
        if isinstance(model, MemoryTransformerConfig) and model.memory_tokens:
            return tuple(range(1, model.layers + 1))
        return ()

    def look(self, module: Any, arguments: Any, output: Any) -> tuple[Tensor, Tensor]:
        """For each position, its place in the segment, [B, n], and shares of attention, means over
        heads.

        The shares are of attention to memory tokens, to cached positions, and of memory: [B, n, m +
        1 + m (1 + PARTS)].
        """
        import torch

        past, x, passage, _ = arguments
        m = module.memory_tokens
        rows, tokens = x.tensor_split((m,), 1)
        visible_rows = output[0][:, :m] if module.bottleneck else rows
        shares = module.token_attention(past, visible_rows, tokens, passage).weights.mean(0)
        batch = len(x)
        n = tokens.shape[1]
        cached = shares[:, :, m : shares.shape[2] - passage.place - n].sum(2, keepdim=True)
        reads = x.new_zeros(batch, m, 1 + PARTS)
        if module.writes:
            attended = module.memory_attention(past, rows, passage).weights.mean(0)
            parts = [attended[:, :, :m], *attended[:, :, m:].tensor_split(PARTS, 2)]
            reads = torch.stack([part.sum(2) for part in parts], 2)
        place = (passage.place + torch.arange(n, device=x.device)).expand(batch, n)
        return place, torch.cat(
            (shares[:, :, :m], cached, reads.flatten(1)[:, None].expand(-1, n, -1)), 2
        )

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        import torch

        length: Any = watch.model.backbone.length
        to_memory = []
        for number, calls in watch.calls():
            layer = watch.layers[number]
            m = layer.memory_tokens
            places, looked = (
                watch.by_token(block, part).cpu() for part in zip(*calls, strict=True)
            )
            part = places * PARTS // length
            shares, reads = looked.double().tensor_split((m + 1,), 1)
            by_place = torch.zeros(PARTS, m + 1, dtype=torch.float64).index_add_(0, part, shares)
            watch.add(number, given=by_place, places=torch.bincount(part, minlength=PARTS))
            if layer.writes:
                watch.add(number, reads=reads.sum(0).view(m, -1))
            to_memory.append(shares[:, :m].sum(1).float())
        watch.mean_column("memory_tokens_attention", to_memory)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Shares of attention, means over heads and scored tokens."""
        to_memory = sums["given"][:, :-1]
        cached = sums["given"][:, -1].sum()
        return {
            "memory": float(to_memory.sum()) / tokens,
            "cached": float(cached) / tokens,
            "segment": 1 - float(to_memory.sum() + cached) / tokens,
            # [m, PARTS]: attention of the tokens in each part of their segment; 0 if none was
            # scored.
            "read_by": (to_memory / np.maximum(sums["places"], 1)[:, None]).T.tolist(),
            # [m, 1 + PARTS]: attention to memory tokens, then to parts of the cached positions.
            "reads": (sums["reads"] / tokens).tolist() if "reads" in sums else None,
        }

    @classmethod
    def summary(cls, metrics: Figures) -> str:
        """`memory tokens: 12.1% of attention in block 1, 20.3% in block 2`."""
        shares = ", ".join(
            f"{block['memory']:.1%} of attention in block {block['block']}"
            for block in metrics["blocks"]
        )
        return f"memory tokens: {shares}"

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        """Two maps for each block: attention of memory to text, which writes, and of text to
        memory, which reads.
        """
        parts = range(1, PARTS + 1)
        segments = Side("place in the segment", [f"segment {n}" for n in parts], turned=True)
        columns = ["memory", *(f"before {n}" for n in parts)]
        before = Side("positions before a segment, the oldest first", columns, turned=True)
        charts = []
        for figures in blocks:
            block = figures["block"]
            maps = (
                ("reads", figures["reads"], before, f"Where memory of block {block} looks"),
                ("read", figures["read_by"], segments, f"Who looks at it in block {block}"),
            )
            charts += [
                _map(f"{block}-{name}", f"{title}, on {split}", rows, side)
                for name, rows, side, title in maps
                if rows
            ]
        return charts


def _map(name: str, title: str, rows: Sequence[Sequence[float]], across: Side) -> Chart:
    """A heat map with a row for each memory token."""
    largest = max(map(max, rows)) or 1.0
    return Chart(
        f"memory-tokens-{name}",
        title,
        f"Shares of attention, means over heads and scored tokens; the darkest is {largest:.1%}.",
        HeatMap(
            [[value / largest for value in column] for column in zip(*rows, strict=True)],
            across,
            Side("memory tokens", [f"memory {n}" for n in range(1, len(rows) + 1)]),
            Share("none", f"{largest:.1%}"),
        ),
    )
