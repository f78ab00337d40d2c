"""Probe of hashed n-grams: the values of their gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.diagnostics.probe import EDGES, LayerProbe, LayerWatch, Sums, histogram_of_blocks
from stages.models.layers.memory_settings import HashedNgramsSettings
from stages.models.layers.settings import Place

if TYPE_CHECKING:
    from stages.charts.data import Chart
    from stages.encoding.probe import ScoredBlock


class GatesWatch(LayerWatch):
    """Counts gates, block by block; for each token, the mean over layers."""

    def see(self, block: ScoredBlock) -> None:
        gates = [self.by_token(block, calls).float().cpu() for _, calls in self.calls()]
        for layer, its in enumerate(gates):
            self.add(layer, counts=np.histogram(its.numpy(), EDGES)[0], total=its.double().sum())
        self.mean_column("ngram_gate", gates)


class NgramsProbe(LayerProbe):
    """Probe of blocks with gates of hashed n-grams."""

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
        title, gates = f"How far n-grams are let in on {split}", [one["gate"] for one in blocks]
        caption = "The share of tokens by the gate of what their latest two and three tokens have stored."
        return histogram_of_blocks("hashed-ngrams-gates", title, caption, blocks, gates, "gate")
