"""Settings of the probe of product-key memories; it has no options. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics.settings import PlainProbeSettings

if TYPE_CHECKING:
    from stages.charts.data import Chart


class ProductKeysProbeSettings(PlainProbeSettings):
    """Its summary and its charts: which slots are read."""

    def summary(self, metrics: Mapping[str, Any]) -> str:
        from stages.diagnostics.product_keys.report import summary

        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "list[Chart]":
        from stages.diagnostics.product_keys.charts import usage_charts

        return usage_charts(metrics)
