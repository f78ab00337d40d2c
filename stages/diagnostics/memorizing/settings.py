"""Settings of the probe of memorizing attention; it has no options. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics.settings import PlainProbeSettings

if TYPE_CHECKING:
    from stages.charts.data import Chart


class MemorizingProbeSettings(PlainProbeSettings):
    """Its summary and its charts: how far back what was found lies, and how well it fits."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        from stages.diagnostics.memorizing.report import summary

        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "list[Chart]":
        from stages.diagnostics.memorizing.charts import search_charts

        return search_charts(metrics)
