"""The interface of a probe: what it sees while a split is scored, and how that is shown.

Free of torch: a page is made after the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from stages.artifacts.artifact import Artifact

if TYPE_CHECKING:
    from torch import Tensor

    from stages.charts.data import Chart
    from stages.encoding.encode import HiddenReader
    from stages.encoding.probe import RangeProbe
    from stages.models.language_model import LanguageModel

Options = Mapping[str, Any]
"""Values by the names of an evaluation's settings; None: not asked for."""
Records = Sequence[Mapping[str, Any]]
"""Records of a probe, one for each range of a split, in order."""


class Probe(ABC):
    """A file of `stages.diagnostics`: what a method or a layer shows of itself. An instance is open for one model."""

    columns: ClassVar[tuple[str, ...]]
    """Names of what is reported of every token."""

    # Before the work

    @classmethod
    @abstractmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        """The probe of the evaluated model; None where it has nothing to show.

        Args:
            read: what the evaluation reads, by role.
            options: as `stages.diagnostics.options.resolve_options` fills them in.
            split: the one that is scored.
        """

    # The work

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

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        """Perplexity of the model alone, the table's `row`, against what the probe varied; as `curves` of a report."""
        return []

    def files(self, records: Records) -> dict[str, Any]:
        """Content of JSON files of the report, by their names."""
        return {}

    # After it

    @classmethod
    @abstractmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """One line of what stands under the probe's name in `metrics.json`."""

    @classmethod
    @abstractmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """Its charts, as far as there are numbers.

        Args:
            metrics: the content of `metrics.json`.
            files: of other JSON files of the report, by their names.
        """
