"""Product-key memories as a probe: which slots are read, and how much they weigh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.diagnostics.product_keys.report import packed, usage_figures
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.hidden_memory import HiddenReader
from stages.encoding.probe import Observation, Probe, RangeProbe, Records, ScoredBlock
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.layers.product_keys import Lookup
from stages.models.layers.product_keys_settings import ProductKeysSettings
from stages.models.layers.settings import AttentionConfig


@dataclass(frozen=True)
class ProductKeysProbe(Probe):
    """`blocks`: those that have such a memory, counted from 1; `slots`: of each."""

    columns: ClassVar[tuple[str, ...]] = ("slot_weight",)

    blocks: tuple[int, ...]
    slots: int

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        if not isinstance(model, AttentionConfig) or not isinstance(model.feed_forward, ProductKeysSettings):
            return None
        return cls(model.blocks_with("feed_forward"), model.feed_forward.slots)

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> "SlotsWatch":
        return SlotsWatch([part for part in model.modules() if isinstance(part, Lookup)], self.slots, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return usage_figures(records, self.blocks)

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        return []

    def files(self, records: Records) -> dict[str, Any]:
        return {}


class SlotsWatch(RangeProbe):
    """Adds up, block after block, how much each slot weighs; of a token, how much its heads lean on one slot."""

    def __init__(self, lookups: Sequence[Lookup], slots: int, start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        self._calls = Calls(lookups, lambda lookup, given, found: found, lookups[0].keys.device)
        self._start, self._counted = start, counted
        self._weights, self._best = (torch.zeros(len(lookups), slots, dtype=torch.float64) for _ in range(2))
        self._largest: list[Tensor] = []
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        rows, largest = counted_rows(self._counted, self._start, block), []
        for layer, calls in enumerate(self._calls.take()):
            slots, weights = (block.encoded.of_tokens(torch.cat(part, 1))[rows] for part in zip(*calls, strict=True))
            self._weights[layer] += _added_up(slots, weights, self._weights.shape[1])
            first = slots[..., 0]
            self._best[layer] += _added_up(first, torch.ones_like(first), self._weights.shape[1])
            largest.append(weights[..., 0].float().mean(1))
        self._largest.append(torch.stack(largest).mean(0))
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        self._calls.close()
        record = {
            "weights": [packed(one.numpy()) for one in self._weights],
            "best": [packed(one.numpy()) for one in self._best],
        }
        return Observation({"slot_weight": torch.cat(self._largest)}, record, self._seconds + self._calls.seconds)


def _added_up(slots: Tensor, weights: Tensor, number: int) -> Tensor:
    """Weights by slot, float64 [number], on the CPU."""
    return torch.bincount(slots.flatten().cpu(), weights.flatten().double().cpu(), number)
