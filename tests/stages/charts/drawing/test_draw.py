"""Lines, bars, outlines and cells stand where their numbers say."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import Bars, HeatMap, Histogram, Level, Line, Lines, Series, Share, Side, SmallerIsBetter
from stages.charts.drawing import axes
from stages.charts.drawing.bars import draw_bars
from stages.charts.drawing.cell_colours import best, look
from stages.charts.drawing.heat_map import draw_heat_map
from stages.charts.drawing.histogram import draw_histogram
from stages.charts.drawing.lines import POINTS_DRAWN, draw_lines, thinned
from tests.stages.charts.drawing.elements import parts

Points = list[tuple[float, float]]
TOP = 10 + 18
"""Of the area under a legend of one line."""


def drawn_points(line: ElementTree.Element) -> Points:
    return [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]  # type: ignore[misc]


def drawn_lines(plot: Lines) -> list[Points]:
    """Points of the lines under the legend."""
    lines = [drawn_points(line) for line in parts(draw_lines(plot), "polyline", "line")]
    return [points for points in lines if points[0][1] >= TOP]


def test_points_of_a_line_are_spread_as_their_numbers_are() -> None:
    (((x0, y0), (x1, y1), (x4, y4)),) = drawn_lines(Lines([Line("a", [(0, 10.0), (1, 20.0), (4, 15.0)])], "x", "y"))
    assert (x4 - x0) == pytest.approx(4 * (x1 - x0), abs=0.3)
    assert y1 < y4 < y0
    assert (y0 - y4) == pytest.approx((y0 - y1) / 2, abs=0.2)


def test_what_is_no_number_is_left_out() -> None:
    plot = Lines([Line("a", [(1, 1.0), (2, None), (3, math.inf), (4, 2.0)]), Line("b", [(1, None)])], "x", "y")
    assert [len(points) for points in drawn_lines(plot)] == [2]
    assert [text.text for text in parts(draw_lines(plot), "text", "label")] == ["a"]
    assert not plot.empty and Lines(plot.lines[1:], "x", "y").empty


def test_a_level_is_drawn_across() -> None:
    drawing = draw_lines(Lines([Line("a", [(1, 1.0), (2, 2.0)])], "x", "y", level=Level("plain", 3.0)))
    assert len(parts(drawing, "line", "level")) == 2
    assert [text.text for text in parts(drawing, "text", "label")] == ["a", "plain"]


@pytest.mark.parametrize("far", [1000.0, 1e9, 1e300])
def test_what_explodes_is_cut_off_and_leaves_the_rest_to_be_seen(far: float) -> None:
    plot = Lines([Line("a", [(1, 60.0), (2, 100.0), (3, far), (4, 90.0)])], "x", "y", level=Level("plain", 100.0))
    rising, falling = drawn_lines(plot)
    assert [len(rising), len(falling)] == [3, 2]
    assert rising[-1][1] == falling[0][1] == TOP
    assert rising[1][0] <= rising[-1][0] < falling[0][0] <= falling[1][0]
    assert rising[0][1] > falling[1][1] > rising[1][1] > TOP
    assert len([mark for mark in parts(draw_lines(plot), "path", "mark") if len(mark)]) == 3
    told = [text.text or "" for text in parts(draw_lines(plot), "text", "number")]
    assert max(float(number.replace(",", "")) for number in told) <= 210


def test_nothing_of_a_memory_has_a_place_beside_sizes_that_reach_far() -> None:
    sizes = [0, 1, 4, 16, 64, 256]
    ((first, *others),) = drawn_lines(Lines([Line("a", [(x, 1.0) for x in sizes])], "x", "y", ticks=sizes))
    gaps = [b[0] - a[0] for a, b in pairwise((first, *others))]
    assert min(gaps) > 0.5 * max(gaps)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=3000), st.integers(4, 500))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    kept = thinned(points, most)
    assert len(kept) <= most
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {max(values), min(values)} <= {value for _, value in kept}


def test_long_lines_are_thinned() -> None:
    (points,) = drawn_lines(Lines([Line("a", [(step, math.sin(step)) for step in range(10_000)])], "x", "y"))
    assert len(points) <= POINTS_DRAWN


def test_bars_are_as_long_as_their_values_and_go_down_below_zero() -> None:
    plot = Bars(["one", "two"], [Series("a", [2.0, -1.0]), Series("b", [None, 4.0])], "x", "y")
    first, second, third = [bar for bar in parts(draw_bars(plot), "rect", "bar") if len(bar)]
    heights = [float(bar.get("height") or 0) for bar in (first, second, third)]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.2)
    zero = float(first.get("y") or 0) + heights[0]
    assert float(second.get("y") or 0) == pytest.approx(zero, abs=0.1)
    assert [bar.findtext("title") for bar in (first, second)] == ["a, one: +2", "a, two: -1"]
    assert Bars(["one"], [Series("a", [None])], "x", "y").empty


def test_outlines_of_a_histogram_rise_with_its_shares_and_end_where_they_began() -> None:
    plot = Histogram([0.0, 0.5, 1.0], [Series("a", [0.25, 0.75]), Series("b", [0.5, 0.5])], 0.6, "g")
    outline, other = (drawn_points(line) for line in parts(draw_histogram(plot), "polyline", "line"))
    assert len(outline) == len(other) == 6
    ground, low, high = outline[0][1], outline[1][1], outline[3][1]
    assert outline[-1][1] == ground
    assert (ground - high) == pytest.approx(3 * (ground - low), abs=0.3)
    (_, mean) = sorted(parts(draw_histogram(plot), "line", "level"), key=lambda line: line.get("y1") != line.get("y2"))
    share = (float(mean.get("x1") or 0) - outline[0][0]) / (outline[-1][0] - outline[0][0])
    assert share == pytest.approx(0.6, abs=0.01)


def grid(values: list[list[float]], limit: float, label: str = "plain") -> HeatMap:
    sides = Side("θ", ["1", "2"][: len(values)]), Side("λ", [".1", ".2", ".3"][: len(values[0])])
    return HeatMap(values, *sides, SmallerIsBetter(limit, label))


def test_cells_are_stronger_the_smaller_and_the_best_has_the_star() -> None:
    plot = grid([[5.0, 9.0, 4.0], [11.0, 2.0, math.inf]], limit=10.0)
    assert best(plot.values) == (1, 1)
    looks = [look(value, plot) for value in (2.0, 4.0, 5.0, 9.0, 10.0)]
    assert looks[0] == "h9" and looks[-1] == "h0"
    assert all(above >= below for above, below in pairwise(int(found[1]) for found in looks))
    assert (look(11.0, plot), look(math.inf, plot)) == ("worse", "diverged")
    drawing = draw_heat_map(plot)
    told = [cell.findtext("title") for cell in parts(drawing, "rect", "cell")]
    assert [words for words in told if words] == [
        *("θ 1, λ .1: 5", "θ 1, λ .2: 9", "θ 1, λ .3: 4", "θ 2, λ .1: 11", "θ 2, λ .2: 2", "θ 2, λ .3: diverged"),
    ]
    star = parts(drawing, "path", "star")[0]
    (cell,) = (cell for cell in parts(drawing, "rect", "h9") if len(cell))
    x, y = map(float, re.findall(r"[\d.]+", star.get("transform") or ""))
    assert float(cell.get("x") or 0) < x < float(cell.get("x") or 0) + float(cell.get("width") or 0)
    assert float(cell.get("y") or 0) < y < float(cell.get("y") or 0) + float(cell.get("height") or 0)


def test_a_grid_without_differences_is_all_best() -> None:
    assert look(3.0, grid([[3.0, 3.0]], limit=3.0)) == "h9"


def test_a_cell_that_equals_the_model_without_memory_is_not_worse() -> None:
    assert look(10.000001, grid([[5.0, 9.0]], limit=10.0)) == "h0"


def test_shares_have_the_colours_of_their_ends_and_room_for_words_below() -> None:
    texts = [f"word {place}" for place in range(80)]
    plot = HeatMap([[0.0, 0.5, 1.0]] * 80, Side("", texts, turned=True), Side("", [""] * 3), Share("memory", "context"))
    assert [look(value, plot) for value in (-0.1, 0.0, 0.5, 1.0, 1.1)] == ["g0", "g0", "g5", "g10", "g10"]
    drawing = draw_heat_map(plot)
    words = parts(drawing, "text", "number")
    assert set(texts) <= {text.text for text in words}
    places = [float(text.get("x") or 0) for text in words if text.text in texts]
    assert min(b - a for a, b in pairwise(places)) >= 12
    assert max(places) < drawing.width


def test_labels_that_are_longer_than_a_line_keep_what_tells_them_apart() -> None:
    long = "lm, knn-lm then neural-cache: shakespeare-first-252.0kB-of-1.1MB-of-all-the-plays-there-are.txt test"
    cut = [axes.fitted(label) for label in (long, f"{long}, by chance", "plain")]
    assert cut[0].endswith(".txt test") and cut[1].endswith("test, by chance") and cut[2] == "plain"
    assert all(axes.LEFT + 28 + axes.LETTER * len(label) <= axes.WIDTH for label in cut)
    assert all(label.startswith("lm, knn-lm then neural") and "…" in label for label in cut[:2])
