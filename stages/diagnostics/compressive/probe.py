"""Compressive attention as a probe: where it looks, and what its compression loses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.diagnostics.compressive.report import PARTS, attention_figures
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.hidden_memory import HiddenReader
from stages.encoding.probe import Observation, Probe, RangeProbe, Records, ScoredBlock
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.layers.compressive import CompressiveAttention
from stages.models.layers.compressive_settings import CompressiveSettings
from stages.models.layers.settings import AttentionConfig


@dataclass(frozen=True)
class CompressiveProbe(Probe):
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
    ) -> "AttentionWatch":
        layers = [part for part in model.modules() if isinstance(part, CompressiveAttention)]
        return AttentionWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return attention_figures(records, self.blocks)

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        return []

    def files(self, records: Records) -> dict[str, Any]:
        return {}


class AttentionWatch(RangeProbe):
    """Adds up, block after block, where positions look; and the compression loss each time that a segment ends."""

    def __init__(self, layers: Sequence[CompressiveAttention], start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        self._layers, self._start, self._counted = layers, start, counted
        self._calls = Calls(layers, _seen, next(layers[0].parameters()).device)
        self._attention = torch.zeros(len(layers), 2 * PARTS + 1, dtype=torch.float64)
        self._losses, self._borders, self._tokens = torch.zeros(len(layers), dtype=torch.float64), 0, 0
        self._shares: list[Tensor] = []
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
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
    return torch.stack([part.sum(2) for part in weights.tensor_split(PARTS, 2)], 2)
