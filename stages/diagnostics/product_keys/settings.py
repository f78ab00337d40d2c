"""What is reported of product-key memories; nothing is asked. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart
from stages.diagnostics.product_keys.charts import usage_charts
from stages.diagnostics.product_keys.report import summary
from stages.diagnostics.settings import PlainProbeSettings


class ProductKeysProbeSettings(PlainProbeSettings):
    """Its summary and its charts: which slots are read."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return usage_charts(metrics)
