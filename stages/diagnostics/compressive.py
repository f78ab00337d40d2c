"""Probe of compressive attention: the slots that it reads, and the loss of compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from stages.charts.data import Chart, Line, Lines
from stages.diagnostics.probe import Figures, LayerProbe, LayerWatch, Sums
from stages.models.layers.memory_settings import CompressiveSettings

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.probe import ScoredBlock

PARTS = 6
"""Number of equal parts of the slots, and of the cached positions, whose attention is reported
separately.
"""
PLACES = [
    *(f"slots {n}" for n in range(1, PARTS + 1)),
    *(f"cached {n}" for n in range(1, PARTS + 1)),
    "segment",
]
"""Names of the places of attention, the oldest first."""


class CompressiveProbe(LayerProbe):
    """Probe of the attention to each place, and of the compression loss at each end of a segment."""

    name: ClassVar[str] = "compressive"
    settings: ClassVar[type] = CompressiveSettings
    layer: ClassVar[str] = "stages.models.layers.compressive:CompressiveAttention"
    columns: ClassVar[tuple[str, ...]] = ("slots_attention",)

    def look(self, module: Any, arguments: Any, output: Any) -> tuple[Tensor, float | None]:
        """Shares of attention by place, means over heads, [B, n, 2 PARTS + 1]; and the loss, if
        slots are made.
        """
        import torch

        inputs, passage, memory = arguments
        weights, slots = module.looked(inputs, passage, memory)
        own_keys = inputs.raw.shape[1] - passage.cached + passage.place
        to_slots, cached, segment = weights.mean(0).split(
            (slots, weights.shape[3] - slots - own_keys, own_keys), 2
        )
        # Parts are nearly equal, the oldest first; an empty part has no attention.
        parts = (*to_slots.tensor_split(PARTS, 2), *cached.tensor_split(PARTS, 2), segment)
        by_place = torch.stack([part.sum(2) for part in parts], 2)
        dropped = module.dropped(inputs)
        if not passage.ends_segment or not dropped.shape[1]:
            return by_place, None
        return by_place, float(
            module.reconstruction_loss(inputs, passage, dropped, module.compressed(dropped))
        )

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        to_slots = []
        for layer, calls in watch.calls():
            attention = watch.by_token(block, [hidden for hidden, _ in calls]).double()
            losses = [loss for _, loss in calls if loss is not None]
            watch.add(
                layer, attention=attention.sum(0), loss=float(sum(losses)), borders=len(losses)
            )
            to_slots.append(attention[:, :PARTS].sum(1).float())
        watch.mean_column("slots_attention", to_slots)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        row = sums["attention"] / tokens
        return {
            "slots": float(row[:PARTS].sum()),
            "cached": float(row[PARTS:-1].sum()),
            "segment": float(row[-1]),
            "by_age": dict(zip(PLACES, row.tolist(), strict=True)),
            "loss": float(sums["loss"] / sums["borders"]) if sums["borders"] else None,
        }

    @classmethod
    def summary(cls, metrics: Figures) -> str:
        """`compressive: attention to slots 12.1% in block 1, 20.3% in block 2; compression loss
        0.0123, 0.0203`.
        """
        shares = ", ".join(
            f"{block['slots']:.1%} in block {block['block']}" for block in metrics["blocks"]
        )
        losses = ", ".join(
            "none" if block["loss"] is None else f"{block['loss']:.3g}"
            for block in metrics["blocks"]
        )
        return f"compressive: attention to slots {shares}; compression loss {losses}"

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        places = len(blocks[0]["by_age"])
        lines = [
            Line(f"block {block['block']}", list(enumerate(block["by_age"].values(), 1)))
            for block in blocks
        ]
        across = "oldest slots … newest, oldest cached … newest, segment"
        caption = (
            f"The share of attention that goes to each sixth of the slots (1 to {places // 2}), the oldest first, of "
            f"the cached positions (to {places - 1}) and to the segment itself ({places})."
        )
        plot = Lines(lines, across, "share of attention", percent=True)
        return [
            Chart(
                "compressive-attention", f"Attention to compressed slots on {split}", caption, plot
            )
        ]
