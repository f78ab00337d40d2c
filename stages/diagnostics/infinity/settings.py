"""What is reported of attention to a continuous signal; nothing is asked. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart
from stages.diagnostics.infinity.charts import signal_charts
from stages.diagnostics.infinity.report import summary
from stages.diagnostics.settings import PlainProbeSettings


class InfinityProbeSettings(PlainProbeSettings):
    """Its summary and its chart: where on the signal attention falls."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return signal_charts(metrics)
