"""Settings of the probe of compressive attention; it has no options. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics.settings import PlainProbeSettings

if TYPE_CHECKING:
    from stages.charts.data import Chart


class CompressiveProbeSettings(PlainProbeSettings):
    """Its summary and its chart: where attention falls."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        from stages.diagnostics.compressive.report import summary

        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "list[Chart]":
        from stages.diagnostics.compressive.charts import attention_charts

        return attention_charts(metrics)
