"""Memorizing attention as a probe: what its searches find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.diagnostics.memorizing.report import AGES, ANGLES, search_figures
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.hidden_memory import HiddenReader
from stages.encoding.probe import Observation, Probe, RangeProbe, Records, ScoredBlock
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.layers.memorizing import MemorizingAttention, Retrieved, Search
from stages.models.layers.memorizing_settings import MemorizingSettings
from stages.models.layers.settings import AttentionConfig


@dataclass(frozen=True)
class MemorizingProbe(Probe):
    """`blocks`: those that have such attention, counted from 1."""

    columns: ClassVar[tuple[str, ...]] = ("memory_weight", "memory_age")

    blocks: tuple[int, ...]

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        if not isinstance(model, AttentionConfig) or not isinstance(model.attention, MemorizingSettings):
            return None
        return cls(model.blocks_with("attention"))

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> "SearchWatch":
        layers = [part for part in model.modules() if isinstance(part, MemorizingAttention)]
        return SearchWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return search_figures(records, self.blocks, records[0]["gates"])

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        return []

    def files(self, records: Records) -> dict[str, Any]:
        return {}


class SearchWatch(RangeProbe):
    """Adds up, block after block, how old what is found is and how well it fits; of a token, what its best entry is."""

    def __init__(self, layers: Sequence[MemorizingAttention], start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        self._start, self._counted = start, counted
        self._gates = [layer.gates().detach().double().cpu() for layer in layers]
        self._scales = [layer.scales().detach().double().cpu() for layer in layers]
        self._calls = Calls([layer.search for layer in layers], _by_position, layers[0].gate.device)
        self._ages = torch.zeros(len(layers), AGES, dtype=torch.float64)
        self._cosines = torch.zeros(len(layers), ANGLES, dtype=torch.float64)
        self._scores, self._found = (torch.zeros(len(layers), dtype=torch.float64) for _ in range(2))
        self._weight, self._age, self._tokens = list[Tensor](), list[Tensor](), 0
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        rows, largest, oldest = counted_rows(self._counted, self._start, block), list[Tensor](), list[Tensor]()
        for layer, calls in enumerate(self._calls.take()):
            found = block.encoded.of_tokens(torch.cat(_of_one_width(calls), 1))[rows].cpu()
            ages, scores, weights = found.unbind(1)
            groups = ages.clamp(min=1).log2().long().clamp(max=AGES - 1)
            self._ages[layer] += torch.bincount(groups.flatten(), weights.flatten(), AGES)
            sees = weights[..., 0] > 0
            cosines = (scores[..., 0] / self._scales[layer])[sees]
            parts = ((cosines + 1) / 2 * ANGLES).long().clamp(0, ANGLES - 1)
            self._cosines[layer] += torch.bincount(parts, minlength=ANGLES)
            self._scores[layer] += scores[..., 0][sees].sum()
            self._found[layer] += sees.sum()
            weight, head = (self._gates[layer] * weights[..., 0]).max(1)
            largest.append(weight)
            oldest.append(ages[..., 0].gather(1, head[:, None])[:, 0] * (weight > 0))
        weight, place = torch.stack(largest).max(0)
        self._weight.append(weight.float())
        self._age.append(torch.stack(oldest).gather(0, place[None])[0].float())
        self._tokens += len(weight)
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        self._calls.close()
        record = {
            "tokens": self._tokens,
            "gates": [gates.tolist() for gates in self._gates],
            "ages": self._ages.tolist(),
            "cosines": self._cosines.tolist(),
            "scores": self._scores.tolist(),
            "found": self._found.tolist(),
        }
        columns = {"memory_weight": torch.cat(self._weight), "memory_age": torch.cat(self._age)}
        return Observation(columns, record, self._seconds + self._calls.seconds)


def _by_position(search: Search, given: Any, found: Retrieved) -> Tensor:
    """Ages, scores and weights, the best entry first, float64 [B, n, 3, heads, k]; scores are 0 where none is seen."""
    weights = found.weights.double()
    parts = torch.stack((found.ages.double(), found.scores.double().where(weights > 0, 0.0), weights), 1)
    order = weights.argsort(-1, descending=True)[:, None].expand_as(parts)
    return parts.gather(-1, order).permute(0, 3, 1, 2, 4)


def _of_one_width(calls: Sequence[Tensor]) -> list[Tensor]:
    """The same with as many entries a position, at least one: what is added has no weight."""
    most = max(1, *(one.shape[4] for one in calls))
    return [F.pad(one, (0, most - one.shape[4])) for one in calls]
