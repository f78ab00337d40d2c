"""How far the gates of hashed n-grams open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Histogram, Series
from stages.diagnostics.probe import LayerProbe, LayerWatch, Sums
from stages.models.layers.memory_settings import HashedNgramsSettings
from stages.models.layers.settings import Place

if TYPE_CHECKING:
    from stages.encoding.probe import ScoredBlock

BINS = 20
"""Equal parts of [0, 1] in which gates are counted."""
EDGES = [place / BINS for place in range(BINS + 1)]


class GatesWatch(LayerWatch):
    """Counts gates, block after block; of a token, their mean over layers."""

    def see(self, block: ScoredBlock) -> None:
        import torch

        gates = [self.by_token(block, calls).float().cpu() for _, calls in self.calls()]
        for layer, its in enumerate(gates):
            self.add(layer, counts=np.histogram(its.numpy(), EDGES)[0], total=its.double().sum())
        self.column(ngram_gate=torch.stack(gates).mean(0))


class NgramsProbe(LayerProbe):
    """Gates of blocks that have them."""

    name: ClassVar[str] = "hashed_ngrams"
    place: ClassVar[Place] = "lookup"
    settings: ClassVar[type] = HashedNgramsSettings
    layer: ClassVar[str] = "stages.models.layers.hashed_ngrams:RowsGate"
    watching: ClassVar[type[LayerWatch]] = GatesWatch
    columns: ClassVar[tuple[str, ...]] = ("ngram_gate",)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """The mean gate, and the share of tokens in each twentieth of [0, 1]."""
        return {"gate": float(sums["total"] / tokens), "histogram": (sums["counts"] / tokens).tolist()}

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`n-grams: block 1 gate 0.61 on average`."""
        said = (f"block {one['block']} gate {one['gate']:.2f} on average" for one in metrics["blocks"])
        return f"n-grams: {'; '.join(said)}"

    @classmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        return [
            Chart(
                "hashed-ngrams-gates",
                f"How far n-grams are let in on {split}",
                "The share of tokens by the gate of what their latest two and three tokens have stored.",
                Histogram(
                    EDGES,
                    [Series(f"block {one['block']}", one["histogram"]) for one in blocks],
                    float(np.mean([one["gate"] for one in blocks])),
                    "gate",
                ),
            )
        ]
