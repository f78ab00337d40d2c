"""Compressive attention: which slots it reads, and what was lost when they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines, Table
from stages.diagnostics.probe import Records
from stages.diagnostics.watching import LayerProbe, LayerWatch
from stages.models.layers.compressive_settings import CompressiveSettings

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.compressive import CompressiveAttention


PARTS = 6
"""Equal parts of the slots, and of the cached positions, whose attention is reported apart."""
PLACES = [*(f"slots {n}" for n in range(1, PARTS + 1)), *(f"cached {n}" for n in range(1, PARTS + 1)), "segment"]
"""Where attention goes, the oldest first."""


class CompressiveProbe(LayerProbe):
    """Attention to slots by their age, and the compression loss."""

    name: ClassVar[str] = "compressive"
    settings: ClassVar[type] = CompressiveSettings
    columns: ClassVar[tuple[str, ...]] = ("slots_attention",)

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> AttentionWatch:
        from stages.models.layers.compressive import CompressiveAttention

        layers = [part for part in model.modules() if isinstance(part, CompressiveAttention)]
        return AttentionWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        tokens = sum(record["tokens"] for record in records)
        attention = np.sum([record["attention"] for record in records], axis=0) / tokens
        borders = sum(record["borders"] for record in records)
        losses = np.sum([record["losses"] for record in records], axis=0)
        return {
            "blocks": [
                {
                    "block": block,
                    "slots": float(row[:PARTS].sum()),
                    "cached": float(row[PARTS:-1].sum()),
                    "segment": float(row[-1]),
                    "by_age": dict(zip(PLACES, row.tolist(), strict=True)),
                    "loss": float(loss) / borders if borders else None,
                }
                for block, row, loss in zip(self.blocks, attention, losses, strict=True)
            ]
        }

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`compressive: attention to slots 12.1% in block 1, 20.3% in block 2; compression loss 0.0123, 0.0203`."""
        shares = ", ".join(f"{one['slots']:.1%} in block {one['block']}" for one in metrics["blocks"])
        losses = ", ".join("none" if one["loss"] is None else f"{one['loss']:.3g}" for one in metrics["blocks"])
        return f"compressive: attention to slots {shares}; compression loss {losses}"

    @classmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        places = list(blocks[0]["by_age"])
        lines = [Line(f"block {one['block']}", list(enumerate(one["by_age"].values(), 1))) for one in blocks]
        rows = [(one["block"], one["loss"], *one["by_age"].values()) for one in blocks]
        return [
            Chart(
                "compressive-attention",
                f"Attention to compressed slots on {split}",
                f"The share of attention that goes to each sixth of the slots (1 to {len(places) // 2}), the oldest "
                f"first, of the cached positions (to {len(places) - 1}) and to the segment itself ({len(places)}).",
                Lines(
                    lines, "oldest slots … newest, oldest cached … newest, segment", "share of attention", percent=True
                ),
                Table(("block", "loss", *places), rows),
            )
        ]


class AttentionWatch(LayerWatch):
    """Adds up where positions look; and the compression loss each time that a segment ends."""

    def __init__(self, layers: Sequence[CompressiveAttention], start: int, counted: Tensor | None) -> None:
        import torch

        super().__init__(layers, _seen, next(layers[0].parameters()).device, start, counted)
        self._attention = torch.zeros(len(layers), 2 * PARTS + 1, dtype=torch.float64)
        self._losses, self._borders, self._tokens = torch.zeros(len(layers), dtype=torch.float64), 0, 0
        self._shares: list[Tensor] = []

    def see(self, block: ScoredBlock) -> None:
        import torch

        to_slots = []
        for layer, calls in self.calls():
            looked = self.by_token(block, [one for one, _ in calls]).double().cpu()
            losses = [loss for _, loss in calls if loss is not None]
            self._attention[layer] += looked.sum(0)
            self._losses[layer] += sum(losses)
            to_slots.append(looked[:, :PARTS].sum(1).float())
        self._borders += len(losses)
        self._tokens += len(looked)
        self._shares.append(torch.stack(to_slots).mean(0).to(block.log_p.device))

    def seen(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        import torch

        record = {
            "tokens": self._tokens,
            "attention": self._attention.tolist(),
            "losses": self._losses.tolist(),
            "borders": self._borders,
        }
        return {"slots_attention": torch.cat(self._shares)}, record


def _seen(layer: CompressiveAttention, given: Any, output: Any) -> tuple[Tensor, float | None]:
    """Shares of attention by place, a mean over heads, [B, n, 2 PARTS + 1]; the loss where something is compressed."""
    import torch

    inputs, passage, memory = given
    with torch.no_grad():
        weights, slots = layer.looked(inputs, passage, memory)
        own = inputs.raw.shape[1] - passage.cached + passage.place
        shares = weights.mean(0).split((slots, weights.shape[3] - slots - own, own), 2)
        by_place = torch.cat((_in_parts(shares[0]), _in_parts(shares[1]), shares[2].sum(2, keepdim=True)), 2)
        left = layer.dropped(inputs)
        if not passage.ends_segment or not left.shape[1]:
            return by_place, None
        return by_place, float(layer.reconstruction_loss(inputs, passage, left, layer.compressed(left)))


def _in_parts(weights: Tensor) -> Tensor:
    """Sums over PARTS nearly equal parts, the oldest first, [B, n, PARTS]; 0 where there are fewer."""
    import torch

    return torch.stack([part.sum(2) for part in weights.tensor_split(PARTS, 2)], 2)
