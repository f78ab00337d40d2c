"""Probe of a MemSizer: the number of slots that a token reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.diagnostics.probe import (
    EDGES,
    Figures,
    LayerProbe,
    LayerWatch,
    Sums,
    histogram_of_blocks,
)
from stages.models.layers.memory_settings import MemSizerSettings

if TYPE_CHECKING:
    from torch import Tensor

    from stages.charts.data import Chart
    from stages.encoding.probe import ScoredBlock


class MemSizerProbe(LayerProbe):
    """Probe of the number of slots that a token reads: exp of the entropy of their weights."""

    name: ClassVar[str] = "memsizer"
    settings: ClassVar[type] = MemSizerSettings
    layer: ClassVar[str] = "stages.models.layers.memsizer:MemSizer"
    columns: ClassVar[tuple[str, ...]] = ("slots_read",)

    def look(self, module: Any, arguments: Any, output: Any) -> Tensor:
        """Weights of slots, [B, n, k]."""
        weights: Tensor = module.weights(arguments[0]).mean(2)
        return weights

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        import torch

        read = []
        for number, calls in watch.calls():
            weights = watch.by_token(block, calls).double().cpu()
            read.append(torch.special.entr(weights).sum(1).exp())
            counts = np.histogram(np.clip(read[-1].numpy() / weights.shape[1], 0, 1), EDGES)[0]
            watch.add(number, counts=counts, read=read[-1].sum(), weights=weights.sum(0))
        watch.mean_column("slots_read", read)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Number of slots, mean number that is read, mean weight of each, and tokens by the share
        that they read.
        """
        return {
            "slots": len(sums["weights"]),
            "read": float(sums["read"] / tokens),
            "weights": (sums["weights"] / tokens).tolist(),
            "histogram": (sums["counts"] / tokens).tolist(),
        }

    @classmethod
    def line(cls, block: Figures) -> str:
        return f"reads {block['read']:.1f} of {block['slots']} slots"

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        title = f"How many slots a token reads on {split}"
        shares = [block["read"] / block["slots"] for block in blocks]
        caption = "The share of tokens by the slots that they read, exp of the entropy of their weights, of all."
        return histogram_of_blocks(
            "memsizer-slots", title, caption, blocks, shares, "share of slots"
        )
