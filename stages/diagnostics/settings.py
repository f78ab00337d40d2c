"""Options of a probe, and how its records are shown. Free of torch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, final

from stages.artifacts.artifact import Artifact

if TYPE_CHECKING:
    from stages.charts.data import Chart

Options = Mapping[str, Any]
"""Values by the names of an evaluation's settings; None: not asked for."""


class ProbeSettings(ABC):
    """A folder of `stages.diagnostics`, before and after the work."""

    options: ClassVar[tuple[str, ...]] = ()
    """Names of an evaluation's settings (`stages.evaluation.config.EvaluateConfig`) that are meant for this probe."""

    @abstractmethod
    def resolve(self, asked: Options, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> dict[str, Any]:
        """The options filled in, settled before any work; see `stages.diagnostics.options.resolve_options`."""

    @abstractmethod
    def of_report(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a question about a model takes over from an evaluation's settings; {}: from none."""

    @abstractmethod
    def summary(self, metrics: Mapping[str, Any]) -> str:
        """One line of what stands under the probe's name in `metrics.json`."""

    @abstractmethod
    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "list[Chart]":
        """Its charts, as far as there are numbers.

        Args:
            metrics: the content of `metrics.json`.
            files: of other JSON files of the report, by their names.
        """


class PlainProbeSettings(ProbeSettings):
    """Settings of a probe without options."""

    @final
    def resolve(self, asked: Options, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> dict[str, Any]:
        return {}

    @final
    def of_report(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {}
