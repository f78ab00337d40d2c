"""Settings of the probe of attention to a continuous signal; it has no options. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics.settings import PlainProbeSettings

if TYPE_CHECKING:
    from stages.charts.data import Chart


class InfinityProbeSettings(PlainProbeSettings):
    """Its summary and its chart: where on the signal attention falls."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        from stages.diagnostics.infinity.report import summary

        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "list[Chart]":
        from stages.diagnostics.infinity.charts import signal_charts

        return signal_charts(metrics)
