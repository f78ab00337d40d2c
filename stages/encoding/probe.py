"""Observations of probes while a split is scored. They are data and never change a score."""

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
    """n scored contexts: their encodings, the inputs of the softmax, and log p.

    `read` [n, d]: the hidden states, with hidden memory added if there is one. `log_p` [n]: of the
    targets, in nats.
    """

    model: LanguageModel
    encoded: EncodedBlock
    read: Tensor
    log_p: Tensor


@dataclass(frozen=True)
class Observation:
    """Observations of a probe at the c scored tokens of a range.

    `columns`: one number per token, float32 [c], by name. `scores.zarr` keeps them; inspect
    and compare show them. `record`: JSON from which metrics are made. `seconds`: time taken by the
    probe.
    """

    columns: Mapping[str, Tensor]
    record: Mapping[str, Any]
    seconds: float


class RangeProbe(ABC):
    """Watches one range of tokens."""

    @abstractmethod
    def observe(self, block: ScoredBlock) -> None:
        """Observe a block; blocks come in order, without gaps."""

    @abstractmethod
    def observation(self) -> Observation:
        """Return the observations after all blocks of the range."""
