"""Slots of a Memformer: how many keep what they hold when a segment is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Histogram, Series, Table
from stages.diagnostics.probe import PlainProbe, Records
from stages.diagnostics.watching import Calls
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe
from stages.models.backbones.memformer_config import MemformerConfig
from stages.models.config import model_of

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.slot_memory import SlotWriter

BINS = 20


def slot_figures(records: Records) -> dict[str, Any]:
    """The `memformer` of `metrics.json`: attention of slots to themselves, a mean over heads, by slot and segment."""
    counts = np.sum([record["counts"] for record in records], 0)
    written = int(counts.sum())
    mean = sum(record["total"] for record in records) / written if written else None
    return {
        "writes": sum(record["writes"] for record in records),
        "kept": float(counts[BINS // 2 :].sum()) / written if written else None,
        "self_attention": mean,
        "histogram": {"edges": np.linspace(0, 1, BINS + 1).tolist(), "slots": counts.tolist()},
    }


def slot_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`memformer-slots`, if slots were written.

    Args:
        metrics: the content of `metrics.json`.
    """
    reported = metrics.get("memformer")
    if not reported or reported["self_attention"] is None:
        return []
    edges, slots = reported["histogram"]["edges"], reported["histogram"]["slots"]
    return [
        Chart(
            "memformer-slots",
            f"How much slots keep, on {metrics['split']}",
            "Attention of a slot to itself when a segment is written: at 1 it keeps what it holds, at 0 all is new. "
            f"{reported['kept']:.0%} are above a half.",
            Histogram(
                edges,
                [Series("slots", [n / sum(slots) for n in slots])],
                reported["self_attention"],
                "attention to itself",
            ),
            Table(("from", "to", "slots"), list(zip(edges, edges[1:], slots, strict=False))),
        )
    ]


@dataclass(frozen=True)
class MemformerProbe(PlainProbe):
    """Open for a Memformer that has slots."""

    columns: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        return cls() if isinstance(model, MemformerConfig) and model.slots else None

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> SlotsWatch:
        from stages.models.layers.slot_memory import SlotWriter

        (writer,) = (part for part in model.modules() if isinstance(part, SlotWriter))
        return SlotsWatch(writer)

    def metrics(self, records: Records) -> dict[str, Any]:
        return slot_figures(records)

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`memformer: 64.0% of slots attend to themselves by more than a half (mean 0.61), 312 segments written`."""
        if metrics["self_attention"] is None:
            return "memformer: no segment was written"
        return (
            f"memformer: {metrics['kept']:.1%} of slots attend to themselves by more than a half "
            f"(mean {metrics['self_attention']:.2f}), {metrics['writes']} segments written"
        )

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return slot_charts(metrics)


class SlotsWatch(RangeProbe):
    """Counts, each time that slots are written, how much each attends to itself."""

    def __init__(self, writer: SlotWriter) -> None:
        import torch

        self._calls = Calls([writer], _itself, writer.bias.device)
        self._counts, self._total, self._writes = torch.zeros(BINS, dtype=torch.int64), 0.0, 0
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
        import torch

        started = now(block.log_p.device)
        (calls,) = self._calls.take()
        for shares in calls:
            self._counts += torch.bincount((shares * BINS).long().clamp(max=BINS - 1), minlength=BINS)
            self._total += float(shares.sum())
            self._writes += 1
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        self._calls.close()
        record = {"counts": self._counts.tolist(), "total": self._total, "writes": self._writes}
        return Observation({}, record, self._seconds + self._calls.seconds)


def _itself(writer: SlotWriter, given: Any, output: Any) -> Tensor:
    """Attention of each slot to itself, float64 on the CPU, flat."""
    import torch

    memory, read = given
    with torch.no_grad(), torch.autocast(memory.device.type, enabled=False):
        weights = writer.weights(memory, read.to(memory.dtype))
        return weights[:, :, :, 0].mean(1).flatten().double().cpu()
