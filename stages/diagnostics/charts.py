"""Charts of what probes left in a report."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart
from stages.diagnostics import CHARTS


def probe_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> dict[str, list[Chart]]:
    """The charts of each probe, by its name, as far as there are numbers.

    Args:
        metrics: the content of `metrics.json`.
        files: of other JSON files of the report, by their names.
    """
    return {name: CHARTS.load(name)(metrics, files) for name in CHARTS.names()}
