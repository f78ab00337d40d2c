"""Probes: what a method or a layer shows of itself while a split is scored. They return data, never a figure."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import EncodedBlock
from stages.encoding.hidden_memory import HiddenReader
from stages.models.language_model import LanguageModel

Records = Sequence[Mapping[str, Any]]
"""Records of a probe, one for each range of a split, in order."""


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


class Probe(ABC):
    """A folder of `stages.diagnostics`, opened for the model that is evaluated."""

    columns: ClassVar[tuple[str, ...]]
    """Names of what is reported of every token."""

    @classmethod
    @abstractmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        """The probe of the evaluated model; None where it has nothing to show.

        Args:
            read: what the evaluation reads, by role.
            options: resolved.
            split: the one that is scored.
        """

    @abstractmethod
    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> RangeProbe:
        """Watch a range from token `start` on; before the model reads it, so layers can be watched at work.

        Args:
            model: the one that is evaluated.
            reader: lets memory into the range's hidden states; None: the model has none.
            counted: bool [n], tokens that figures are about; None: all.
        """

    @abstractmethod
    def metrics(self, records: Records) -> dict[str, Any]:
        """Compute the entry under the probe's name in `metrics.json`."""

    @abstractmethod
    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        """Perplexity of the model alone, the table's `row`, against what the probe varied; as `curves` of a report."""

    @abstractmethod
    def files(self, records: Records) -> dict[str, Any]:
        """Content of JSON files of the report, by their names."""
