"""Bars and outlines as they are drawn."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle, StepPatch

from stages.charts.bars import bars_axes, histogram_axes, value_text
from stages.charts.data import Bars, Histogram, Series
from stages.charts.sheet import drawing_style


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with drawing_style("bars"):
        yield


def rectangles(axes: Axes) -> list[tuple[float, float]]:
    """Middle and end of each bar."""
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars]


def test_bars_have_their_values_and_intervals() -> None:
    plot = Bars(
        ["one", "two"],
        [Series("a", [2.0, -1.0], [(1.0, 3.0), None]), Series("b", [None, 4.0])],
        "x",
        "y",
    )
    axes = bars_axes(plot)
    bars = rectangles(axes)
    assert [end for _, end in bars] == [2.0, -1.0, 4.0]
    assert [middle for middle, _ in bars] == pytest.approx([-0.205, 0.795, 1.205])
    (whiskers,) = axes.collections
    (whisker,) = whiskers.get_paths()
    assert whisker.vertices == pytest.approx(np.array([[-0.205, 1.0], [-0.205, 3.0]]))
    assert [text.get_text() for text in axes.texts] == ["+2", "−1", "+4"]
    assert Bars(["one"], [Series("a", [None])], "x", "y").empty


def test_an_interval_need_not_hold_its_value() -> None:
    axes = bars_axes(Bars(["one"], [Series("a", [2.0], [(3.0, 4.0)])], "x", "y"))
    assert axes.get_ylim()[1] > 4


@pytest.mark.parametrize("groups, turned", [(4, False), (12, True)])
def test_names_of_bars_that_would_touch_are_turned(groups: int, turned: bool) -> None:
    names = [f"a name {place:02}" for place in range(groups)]
    axes = bars_axes(Bars(names, [Series("a", [1.0] * groups)], "x", "y"))
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == names
    assert {label.get_rotation() for label in labels} == ({35.0} if turned else {0.0})
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    if not turned:
        boxes = [label.get_window_extent() for label in labels]
        for left, right in pairwise(boxes):
            assert left.x1 < right.x0


@pytest.mark.parametrize("count, written", [(4, True), (60, False)])
def test_values_are_written_where_they_have_room(count: int, written: bool) -> None:
    series = [Series("a", [0.123] * count), Series("b", [0.2] * count)]
    axes = bars_axes(Bars([str(place) for place in range(count)], series, "x", "y"))
    assert bool(axes.texts) == written
    boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.x0)
    for left, right in pairwise(boxes):
        assert left.x1 < right.x0


def test_values_that_are_no_changes_have_no_sign() -> None:
    assert value_text(1234, signed=False) == "1,234"
    assert [value_text(value, signed=True) for value in (0.25, -1.25, 0.0)] == [
        "+0.25",
        "−1.25",
        "0",
    ]


def test_outlines_of_a_histogram_have_the_shares_between_the_edges() -> None:
    series = [Series("a", [0.25, 0.75]), Series("b", [0.5, None])]
    axes = histogram_axes(Histogram([0.0, 0.5, 1.0], series, 0.6, "g"))
    filled, first, second = axes.patches
    for patch, values in ((filled, [0.25, 0.75]), (first, [0.25, 0.75]), (second, [0.5, 0])):
        assert isinstance(patch, StepPatch)
        shares, edges, _ = patch.get_data()
        assert (list(shares), list(edges)) == (values, [0.0, 0.5, 1.0])
    (mean,) = axes.lines
    assert list(mean.get_xdata()) == [0.6, 0.6]  # type: ignore[arg-type]
