"""Probe of hashed n-grams: the values of their gates."""

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
from stages.models.layers.memory_settings import HashedNgramsSettings
from stages.models.layers.settings import Place

if TYPE_CHECKING:
    from stages.charts.data import Chart
    from stages.encoding.probe import ScoredBlock


class NgramsProbe(LayerProbe):
    """Probe of blocks with gates of hashed n-grams."""

    name: ClassVar[str] = "hashed_ngrams"
    label: ClassVar[str] = "n-grams"
    place: ClassVar[Place] = "lookup"
    settings: ClassVar[type] = HashedNgramsSettings
    layer: ClassVar[str] = "stages.models.layers.hashed_ngrams:RowsGate"
    columns: ClassVar[tuple[str, ...]] = ("ngram_gate",)

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        gates = [watch.by_token(block, calls).float().cpu() for _, calls in watch.calls()]
        for layer, its in enumerate(gates):
            watch.add(layer, counts=np.histogram(its.numpy(), EDGES)[0], total=its.double().sum())
        watch.mean_column("ngram_gate", gates)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """The mean gate, and the share of tokens in each twentieth of [0, 1]."""
        return {
            "gate": float(sums["total"] / tokens),
            "histogram": (sums["counts"] / tokens).tolist(),
        }

    @classmethod
    def line(cls, block: Figures) -> str:
        return f"gate {block['gate']:.2f} on average"

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        title = f"How far n-grams are let in on {split}"
        gates = [block["gate"] for block in blocks]
        caption = (
            "The share of tokens by the gate of what their latest two and three tokens have stored."
        )
        return histogram_of_blocks("hashed-ngrams-gates", title, caption, blocks, gates, "gate")
