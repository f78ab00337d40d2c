"""What is reported of memorizing attention; nothing is asked. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart
from stages.diagnostics.memorizing.charts import age_charts
from stages.diagnostics.memorizing.report import summary
from stages.diagnostics.settings import PlainProbeSettings


class MemorizingProbeSettings(PlainProbeSettings):
    """Its summary and its chart: how far back what was found lies."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return age_charts(metrics)
