"""What is reported of compressive attention; nothing is asked. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart
from stages.diagnostics.compressive.charts import attention_charts
from stages.diagnostics.compressive.report import summary
from stages.diagnostics.settings import PlainProbeSettings


class CompressiveProbeSettings(PlainProbeSettings):
    """Its summary and its chart: where attention falls."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return attention_charts(metrics)
