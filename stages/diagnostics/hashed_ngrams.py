"""How far the gates of hashed n-grams open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Histogram, Series, Table
from stages.diagnostics.probe import Records
from stages.diagnostics.watching import LayerProbe, LayerWatch
from stages.models.layers.hashed_ngrams_settings import HashedNgramsSettings
from stages.models.layers.settings import Place

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.hashed_ngrams import RowsGate

BINS = 20
"""Equal parts of [0, 1] in which gates are counted."""
EDGES = [place / BINS for place in range(BINS + 1)]


class NgramsProbe(LayerProbe):
    """Gates of blocks that have them."""

    name: ClassVar[str] = "hashed_ngrams"
    place: ClassVar[Place] = "lookup"
    settings: ClassVar[type] = HashedNgramsSettings
    columns: ClassVar[tuple[str, ...]] = ("ngram_gate",)

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> GatesWatch:
        from stages.models.layers.hashed_ngrams import RowsGate

        return GatesWatch([part for part in model.modules() if isinstance(part, RowsGate)], start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        """By block the mean gate, and the share of tokens in each twentieth of [0, 1]."""
        counts = np.sum([record["counts"] for record in records], axis=0)
        sums = np.sum([record["sums"] for record in records], axis=0)
        return {
            "blocks": [
                {"block": block, "gate": float(total / its.sum()), "histogram": (its / its.sum()).tolist()}
                for block, its, total in zip(self.blocks, counts, sums, strict=True)
            ]
        }

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`n-grams: block 1 gate 0.61 on average`."""
        said = (f"block {one['block']} gate {one['gate']:.2f} on average" for one in metrics["blocks"])
        return f"n-grams: {'; '.join(said)}"

    @classmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        rows = [
            (one["block"], low, high, share)
            for one in blocks
            for (low, high), share in zip(pairwise(EDGES), one["histogram"], strict=True)
        ]
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
                Table(("block", "from", "to", "share of tokens"), rows),
            )
        ]


class GatesWatch(LayerWatch):
    """Counts gates, block after block; of a token, their mean over layers."""

    def __init__(self, gates: Sequence[RowsGate], start: int, counted: Tensor | None) -> None:
        super().__init__(gates, lambda gate, given, found: found, gates[0].key.weight.device, start, counted)
        self._counts, self._sums = np.zeros((len(gates), BINS)), np.zeros(len(gates))
        self._means = list["Tensor"]()

    def see(self, block: ScoredBlock) -> None:
        import torch

        gates = torch.stack([self.by_token(block, calls).float().cpu() for _, calls in self.calls()])
        for layer, its in enumerate(gates.numpy()):
            self._counts[layer] += np.histogram(its, EDGES)[0]
        self._sums += gates.double().sum(1).numpy()
        self._means.append(gates.mean(0))

    def seen(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        import torch

        record = {"counts": self._counts.tolist(), "sums": self._sums.tolist()}
        return {"ngram_gate": torch.cat(self._means)}, record
