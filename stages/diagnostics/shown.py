"""Probes' records of a report, in words and charts. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics.options import all_probes

if TYPE_CHECKING:
    from stages.charts.data import Chart


def probe_summaries(metrics: Mapping[str, Any]) -> list[str]:
    """A line for each probe that stands in `metrics.json`."""
    return [part.summary(metrics[name]) for name, part in all_probes().items() if metrics.get(name)]


def probe_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "dict[str, list[Chart]]":
    """The charts of each probe, by its name; see `Probe.charts`."""
    return {name: part.charts(metrics, files) for name, part in all_probes().items()}
