"""Probes' records of a report, in words and charts. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics import PROBES

if TYPE_CHECKING:
    from stages.charts.data import Chart


def probe_summaries(metrics: Mapping[str, Any]) -> list[str]:
    """A line for each probe that stands in `metrics.json`."""
    return [PROBES.load(name).summary(metrics[name]) for name in PROBES.names() if metrics.get(name)]


def probe_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "dict[str, list[Chart]]":
    """The charts of each probe, by its name; see `Probe.charts`."""
    return {name: PROBES.load(name).charts(metrics, files) for name in PROBES.names()}
