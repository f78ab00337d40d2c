"""Attention to a continuous signal as a probe: where each head looks, and how closely."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.diagnostics.infinity.report import PARTS, signal_figures
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.hidden_memory import HiddenReader
from stages.encoding.probe import Observation, Probe, RangeProbe, Records, ScoredBlock
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.layers.infinity import InfinityAttention, Look, SignalReader, masses
from stages.models.layers.infinity_settings import InfinitySettings
from stages.models.layers.settings import AttentionConfig


@dataclass(frozen=True)
class InfinityProbe(Probe):
    """`blocks`: those that have such attention, counted from 1; `sticky`: whether it says where signals are sampled."""

    columns: ClassVar[tuple[str, ...]] = ("signal_place", "signal_deviation")

    blocks: tuple[int, ...]
    sticky: bool

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        if not isinstance(model, AttentionConfig) or not isinstance(model.attention, InfinitySettings):
            return None
        return cls(model.blocks_with("attention"), model.attention.sticky)

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> "SignalWatch":
        layers = [part for part in model.modules() if isinstance(part, InfinityAttention)]
        return SignalWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return signal_figures(records, self.blocks, self.sticky)

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        return []

    def files(self, records: Records) -> dict[str, Any]:
        return {}


class SignalWatch(RangeProbe):
    """Adds up, block after block, where positions look that see a signal; of a token, means over heads and layers."""

    def __init__(self, layers: Sequence[InfinityAttention], start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        self._start, self._counted = start, counted
        self._variances = [layer.variance for layer in layers]
        readers = [layer.reader for layer in layers]
        self._calls = Calls(readers, _by_position, readers[0].out.weight.device)
        self._seen, self._deviations, self._divergences = (
            torch.zeros(len(layers), dtype=torch.float64) for _ in range(3)
        )
        self._parts = torch.zeros(len(layers), PARTS, dtype=torch.float64)
        self._place, self._deviation, self._tokens = list[Tensor](), list[Tensor](), 0
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        rows, columns = counted_rows(self._counted, self._start, block), list[Tensor]()
        for layer, calls in enumerate(self._calls.take()):
            mean, variance, seen = block.encoded.of_tokens(torch.cat(calls, 1))[rows].cpu().unbind(1)
            deviation, ratio = variance.sqrt() * seen, variance / self._variances[layer]
            each = masses(mean[:, :, None], variance[:, :, None], PARTS)
            self._seen[layer] += seen[:, 0].sum()
            self._deviations[layer] += deviation.mean(1).sum()
            self._divergences[layer] += ((ratio - ratio.log() - 1) / 2 * seen).mean(1).sum()
            self._parts[layer] += (each * seen[:, :1]).sum(0)
            columns.append(torch.stack((mean * seen, deviation)).mean(2))
        place, width = torch.stack(columns).mean(0).float()
        self._place.append(place)
        self._deviation.append(width)
        self._tokens += len(place)
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        self._calls.close()
        record = {
            "tokens": self._tokens,
            "seen": self._seen.tolist(),
            "parts": self._parts.tolist(),
            "deviations": self._deviations.tolist(),
            "divergences": self._divergences.tolist(),
        }
        columns = {"signal_place": torch.cat(self._place), "signal_deviation": torch.cat(self._deviation)}
        return Observation(columns, record, self._seconds + self._calls.seconds)


def _by_position(reader: SignalReader, given: Any, look: Look) -> Tensor:
    """Mean, variance, and whether a signal was seen (1 or 0), float64 [B, n, 3, heads]."""
    seen = given[2][:, None].expand_as(look.mean)
    return torch.stack((look.mean.double(), look.variance.double(), seen.double()), 1).permute(0, 3, 1, 2)
