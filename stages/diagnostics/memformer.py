"""Probe of the slots of a Memformer: how many keep their content when a segment is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Histogram, Series
from stages.diagnostics.probe import BINS, Figures, LayerProbe, LayerWatch, Records, Sums
from stages.models.backbones.stream_configs import MemformerConfig
from stages.models.config import BackboneConfig

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.probe import ScoredBlock


class MemformerProbe(LayerProbe):
    """Probe of the attention of each slot to itself, each time that slots are written."""

    name: ClassVar[str] = "memformer"
    layer: ClassVar[str] = "stages.models.backbones.memformer:SlotWriter"
    columns: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def blocks_of(cls, model: BackboneConfig) -> tuple[int, ...]:
        return (1,) if isinstance(model, MemformerConfig) and model.slots else ()

    def look(self, module: Any, arguments: Any, output: Any) -> Tensor:
        """Attention of each slot to itself, mean over heads, flat float64 on the CPU."""
        import torch

        memory, read = arguments
        with torch.autocast(memory.device.type, enabled=False):
            weights = module.weights(memory, read.to(memory.dtype))
            return weights[:, :, :, 0].mean(1).flatten().double().cpu()

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        import torch

        for layer, calls in watch.calls():
            watch.add(layer, counts=np.zeros(BINS, np.int64), total=0.0, writes=len(calls))
            for shares in calls:
                places = (shares * BINS).long().clamp(max=BINS - 1)
                watch.add(layer, counts=torch.bincount(places, minlength=BINS), total=shares.sum())

    def metrics(self, records: Records) -> dict[str, Any]:
        (figures,) = super().metrics(records)["blocks"]
        return {name: value for name, value in figures.items() if name != "block"}

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Attention of slots to themselves, by slot and segment."""
        counts = sums["counts"].astype(int)
        written = int(counts.sum())
        return {
            "writes": int(sums["writes"]),
            "kept": float(counts[BINS // 2 :].sum()) / written if written else None,
            "self_attention": float(sums["total"]) / written if written else None,
            "histogram": {"edges": np.linspace(0, 1, BINS + 1).tolist(), "slots": counts.tolist()},
        }

    @classmethod
    def summary(cls, metrics: Figures) -> str:
        """`memformer: 64.0% of slots attend to themselves by more than a half (mean 0.61), 312
        segments written`.
        """
        if metrics["self_attention"] is None:
            return "memformer: no segment was written"
        return (
            f"memformer: {metrics['kept']:.1%} of slots attend to themselves by more than a half "
            f"(mean {metrics['self_attention']:.2f}), {metrics['writes']} segments written"
        )

    @classmethod
    def charts(cls, metrics: Figures, files: Mapping[str, Any]) -> list[Chart]:
        """`memformer-slots`, if slots were written."""
        reported = metrics.get("memformer")
        return (
            cls.block_charts([reported], reported, metrics["split"])
            if reported and reported["writes"]
            else []
        )

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        edges = reported["histogram"]["edges"]
        slots = reported["histogram"]["slots"]
        caption = (
            "Attention of a slot to itself when a segment is written: at 1 it keeps what it holds, at 0 all is new. "
            f"{reported['kept']:.0%} are above a half."
        )
        shares = [Series("slots", [n / sum(slots) for n in slots])]
        plot = Histogram(edges, shares, reported["self_attention"], "attention to itself")
        return [Chart("memformer-slots", f"How much slots keep, on {split}", caption, plot)]
