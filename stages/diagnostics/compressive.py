"""Compressive attention: which slots it reads, and what was lost when they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Line, Lines, Table
from stages.diagnostics.probe import PlainProbe, Records
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe
from stages.models.config import model_of
from stages.models.layers.compressive_settings import CompressiveSettings
from stages.models.layers.settings import AttentionConfig

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


def attention_figures(records: Records, blocks: Sequence[int]) -> dict[str, Any]:
    """The `compressive` of `metrics.json`.

    Args:
        blocks: that have such attention, counted from 1, in the order of a record's `attention` and `losses`.
    """
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
            for block, row, loss in zip(blocks, attention, losses, strict=True)
        ]
    }


def attention_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`compressive-attention`, if there are numbers.

    Args:
        metrics: the content of `metrics.json`.
    """
    reported = metrics.get("compressive")
    if reported is None:
        return []
    blocks = reported["blocks"]
    places = list(blocks[0]["by_age"])
    lines = [Line(f"block {one['block']}", list(enumerate(one["by_age"].values(), 1))) for one in blocks]
    return [
        Chart(
            "compressive-attention",
            f"Attention to compressed slots on {metrics['split']}",
            f"The share of attention that goes to each sixth of the slots (1 to {len(places) // 2}), the oldest first, "
            f"of the cached positions (to {len(places) - 1}) and to the segment itself ({len(places)}).",
            Lines(lines, "oldest slots … newest, oldest cached … newest, segment", "share of attention", percent=True),
            Table(("block", "loss", *places), [(one["block"], one["loss"], *one["by_age"].values()) for one in blocks]),
        )
    ]


@dataclass(frozen=True)
class CompressiveProbe(PlainProbe):
    """`blocks`: those that have such attention, counted from 1."""

    columns: ClassVar[tuple[str, ...]] = ("slots_attention",)

    blocks: tuple[int, ...]

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        if not isinstance(model, AttentionConfig) or not isinstance(model.attention, CompressiveSettings):
            return None
        return cls(model.blocks_with("attention"))

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> AttentionWatch:
        from stages.models.layers.compressive import CompressiveAttention

        layers = [part for part in model.modules() if isinstance(part, CompressiveAttention)]
        return AttentionWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return attention_figures(records, self.blocks)

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`compressive: attention to slots 12.1% in block 1, 20.3% in block 2; compression loss 0.0123, 0.0203`."""
        shares = ", ".join(f"{one['slots']:.1%} in block {one['block']}" for one in metrics["blocks"])
        losses = ", ".join("none" if one["loss"] is None else f"{one['loss']:.3g}" for one in metrics["blocks"])
        return f"compressive: attention to slots {shares}; compression loss {losses}"

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return attention_charts(metrics)


class AttentionWatch(RangeProbe):
    """Adds up, block after block, where positions look; and the compression loss each time that a segment ends."""

    def __init__(self, layers: Sequence[CompressiveAttention], start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        import torch

        self._layers, self._start, self._counted = layers, start, counted
        self._calls = Calls(layers, _seen, next(layers[0].parameters()).device)
        self._attention = torch.zeros(len(layers), 2 * PARTS + 1, dtype=torch.float64)
        self._losses, self._borders, self._tokens = torch.zeros(len(layers), dtype=torch.float64), 0, 0
        self._shares: list[Tensor] = []
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
        import torch

        started = now(block.log_p.device)
        rows, to_slots = counted_rows(self._counted, self._start, block), []
        for layer, calls in enumerate(self._calls.take()):
            looked = block.encoded.of_tokens(torch.cat([one for one, _ in calls], 1))[rows].double().cpu()
            losses = [loss for _, loss in calls if loss is not None]
            self._attention[layer] += looked.sum(0)
            self._losses[layer] += sum(losses)
            to_slots.append(looked[:, :PARTS].sum(1).float())
        self._borders += len(losses)
        self._tokens += len(looked)
        self._shares.append(torch.stack(to_slots).mean(0).to(block.log_p.device))
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        import torch

        self._calls.close()
        record = {
            "tokens": self._tokens,
            "attention": self._attention.tolist(),
            "losses": self._losses.tolist(),
            "borders": self._borders,
        }
        return Observation({"slots_attention": torch.cat(self._shares)}, record, self._seconds + self._calls.seconds)


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
