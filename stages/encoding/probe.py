"""Observations of probes while a split is scored: data, never a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.encode import EncodedBlock
    from stages.models.language_model import LanguageModel


@dataclass(frozen=True)
class ScoredBlock:
    """n contexts that a model has scored: as they were encoded, what the softmax read of them, and log p.

    `read` [n, d]: the hidden states, or what a hidden memory made of them. `log_p` [n], of the targets, in nats.
    """

    model: LanguageModel
    encoded: EncodedBlock
    read: Tensor
    log_p: Tensor


@dataclass(frozen=True)
class Observation:
    """Observations of a probe at the c scored tokens of a range.

    `columns`: a number a token, float32 [c], by name: kept with `--save-token-scores`, shown by inspect and compare.
    `record`: JSON, of which metrics are made. `seconds`: what looking took.
    """

    columns: Mapping[str, Tensor]
    record: Mapping[str, Any]
    seconds: float


class RangeProbe(ABC):
    """Watches one range of tokens."""

    @abstractmethod
    def observe(self, block: ScoredBlock) -> None:
        """Look at a block; blocks come in order, without gap."""

    @abstractmethod
    def observation(self) -> Observation:
        """Return the observations, once all blocks of the range have come."""
