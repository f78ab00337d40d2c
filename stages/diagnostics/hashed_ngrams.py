"""How far the gates of hashed n-grams open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Histogram, Series, Table
from stages.diagnostics.probe import PlainProbe, Records
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe
from stages.models.config import model_of
from stages.models.layers.hashed_ngrams_settings import HashedNgramsSettings
from stages.models.layers.settings import AttentionConfig

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.hashed_ngrams import RowsGate

BINS = 20
"""Equal parts of [0, 1] in which gates are counted."""
EDGES = [place / BINS for place in range(BINS + 1)]


@dataclass(frozen=True)
class NgramsProbe(PlainProbe):
    """`blocks`: those that have them, counted from 1."""

    columns: ClassVar[tuple[str, ...]] = ("ngram_gate",)

    blocks: tuple[int, ...]

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        if not isinstance(model, AttentionConfig) or not isinstance(model.lookup, HashedNgramsSettings):
            return None
        return cls(model.blocks_with("lookup"))

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
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """`hashed-ngrams-gates`, if there are numbers."""
        if (report := metrics.get("hashed_ngrams")) is None:
            return []
        blocks = report["blocks"]
        rows = [
            (one["block"], low, high, share)
            for one in blocks
            for (low, high), share in zip(pairwise(EDGES), one["histogram"], strict=True)
        ]
        return [
            Chart(
                "hashed-ngrams-gates",
                f"How far n-grams are let in on {metrics['split']}",
                "The share of tokens by the gate of what their latest two and three tokens have stored.",
                Histogram(
                    EDGES,
                    [Series(f"block {one['block']}", one["histogram"]) for one in blocks],
                    _mean(blocks),
                    "gate",
                ),
                Table(("block", "from", "to", "share of tokens"), rows),
            )
        ]


def _mean(blocks: Sequence[Mapping[str, Any]]) -> float:
    return float(np.mean([one["gate"] for one in blocks]))


class GatesWatch(RangeProbe):
    """Counts gates, block after block; of a token, their mean over layers."""

    def __init__(self, gates: Sequence[RowsGate], start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        self._calls = Calls(gates, lambda gate, given, found: found, gates[0].key.weight.device)
        self._start, self._counted = start, counted
        self._counts, self._sums = np.zeros((len(gates), BINS)), np.zeros(len(gates))
        self._means, self._seconds = list["Tensor"](), 0.0

    def observe(self, block: ScoredBlock) -> None:
        import torch

        started = now(block.log_p.device)
        rows = counted_rows(self._counted, self._start, block)
        calls = (torch.cat(of_layer, 1) for of_layer in self._calls.take())
        gates = torch.stack([block.encoded.of_tokens(one)[rows].float().cpu() for one in calls])
        for layer, its in enumerate(gates.numpy()):
            self._counts[layer] += np.histogram(its, EDGES)[0]
        self._sums += gates.double().sum(1).numpy()
        self._means.append(gates.mean(0))
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        import torch

        self._calls.close()
        record = {"counts": self._counts.tolist(), "sums": self._sums.tolist()}
        return Observation({"ngram_gate": torch.cat(self._means)}, record, self._seconds + self._calls.seconds)
