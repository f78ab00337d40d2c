"""All charts of one report, but for what a part of its model shows of itself.

As in Grave et al. 2017 (Improving Neural Language Models with a Continuous Cache, arXiv:1612.04426), figures 2 to 5.
"""

from collections.abc import Mapping
from typing import Any

from stages.charts.curves import accuracy_charts, curve_charts
from stages.charts.data import Chart
from stages.charts.frequency import frequency_charts
from stages.charts.learned_weight import learned_charts
from stages.charts.reported import Report, scored
from stages.charts.tuning import tuning_charts


def report_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """Those that the content of `metrics.json` has numbers for; the same numbers give the same charts."""
    alone = [Report(metrics, scored(metrics))]
    learned = learned_charts(metrics)
    return [
        *tuning_charts(metrics),
        *learned,
        *curve_charts(alone),
        *accuracy_charts(alone),
        *frequency_charts(metrics),
    ]
