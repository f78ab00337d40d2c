"""The first chart of a page."""

from typing import Any

import pytest
from matplotlib.colors import to_hex

from stages.charts.bars import bars_axes
from stages.charts.data import Bars
from stages.charts.palette import LIGHT, SERIES
from stages.charts.rows import MAX_BARS, rows_charts


def report(**other: Any) -> dict[str, Any]:
    rows = [
        {"row": "plain", "perplexity": 40.0},
        {"row": "knn-lm", "perplexity": 30.0, "control": {"perplexity": 36.0}},
        {"row": "neural-cache", "perplexity": 35.0, "control": {"perplexity": 34.0}},
    ]
    changes = {"rows": [{"row": "knn-lm", "interval": [-0.3, -0.2]}]}
    return {"split": "test", "rows": rows, "change_intervals": changes, **other}


def bars(metrics: dict[str, Any]) -> Bars:
    (chart,) = rows_charts(metrics)
    assert isinstance(chart.plot, Bars)
    return chart.plot


def test_the_best_control_stands_between_the_model_alone_and_its_memories() -> None:
    plot = bars(report())
    assert plot.groups == ["plain", "counting", "knn-lm", "neural-cache"]
    assert plot.series[0].values == [40.0, 34.0, 30.0, 35.0]
    assert plot.series[0].intervals == [None, None, pytest.approx((28.0, 32.0)), None]


def test_what_memories_are_compared_with_is_grey_and_values_are_those_of_the_table() -> None:
    plot = bars(report())
    assert plot.muted == ["plain", "counting"]

    axes = bars_axes(plot)
    colours = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert colours == [LIGHT["strong-rule"]] * 2 + [SERIES[0]] * 2
    assert [text.get_text() for text in axes.texts] == ["40.00", "34.00", "30.00", "35.00"]


def test_intervals_against_another_report_are_not_those_of_the_bars() -> None:
    assert set(bars(report(baseline={"row": {}})).series[0].intervals) == {None}


def test_rows_that_diverged_have_no_bar_and_one_bar_is_no_chart() -> None:
    rows = [{"row": "plain", "perplexity": 40.0}, {"row": "knn-lm", "perplexity": None}]
    assert not list(rows_charts(report(rows=rows)))


def test_many_rows_are_cut_behind_those_that_were_asked_for() -> None:
    rows = [{"row": f"row {n}", "perplexity": 10.0 + n} for n in range(30)]
    assert bars(report(rows=rows)).groups == [f"row {n}" for n in range(MAX_BARS)]
