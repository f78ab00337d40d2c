"""Lines, bars and cells stand where their numbers say."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.drawing.bar_chart import Bars, bar_chart
from stages.charts.drawing.figure import Figure
from stages.charts.drawing.heat_map import Entries, Side, heat_map
from stages.charts.drawing.line_chart import MOST_POINTS, Axes, Line, line_chart, thinned

NUMBERS = ("x", "y"), [[1, 2]]
Points = list[tuple[float, float]]


def parts(figure: Figure | None, tag: str, look: str) -> list[ElementTree.Element]:
    """The elements of a kind and class."""
    assert figure is not None
    root = ElementTree.fromstring(figure.svg)
    found = root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [element for element in found if look in (element.get("class") or "").split()]


def drawn_points(line: ElementTree.Element) -> Points:
    return [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]  # type: ignore[misc]


def chart(lines: list[Line], **axes: object) -> Figure | None:
    return line_chart("name", "A <title>", "what", lines, Axes("x", "y", **axes), NUMBERS)  # type: ignore[arg-type]


def test_points_of_a_line_are_spread_as_their_numbers_are() -> None:
    figure = chart([Line("a", [(0, 10.0), (1, 20.0), (4, 15.0)])])
    (line, *_) = parts(figure, "polyline", "line")[::-1]
    (x0, y0), (x1, y1), (x4, y4) = drawn_points(line)
    assert (x4 - x0) == pytest.approx(4 * (x1 - x0), abs=0.3)
    assert y1 < y4 < y0
    assert (y0 - y4) == pytest.approx((y0 - y1) / 2, abs=0.2)


def test_what_is_no_number_is_left_out_and_nothing_at_all_is_no_figure() -> None:
    figure = chart([Line("a", [(1, 1.0), (2, None), (3, math.inf), (4, 2.0)]), Line("b", [(1, None)])])
    lines = parts(figure, "polyline", "line")
    assert {len(drawn_points(line)) for line in lines} == {2}
    assert "b" not in [text.text for text in parts(figure, "text", "label")]
    assert chart([Line("a", [(1, None)])]) is None


def test_a_level_is_drawn_across() -> None:
    figure = chart([Line("a", [(1, 1.0), (2, 2.0)])], level=3.0, level_label="plain")
    assert len(parts(figure, "line", "level")) == 2
    assert [text.text for text in parts(figure, "text", "label")] == ["a", "plain"]


def test_titles_are_read_out() -> None:
    figure = chart([Line("a", [(1, 1.0)])])
    assert figure is not None
    assert ElementTree.fromstring(figure.svg).findtext("{http://www.w3.org/2000/svg}title") == "A <title>"


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
    figure = chart([Line("a", [(step, math.sin(step)) for step in range(10_000)])])
    assert max(len(drawn_points(line)) for line in parts(figure, "polyline", "line")) <= MOST_POINTS


def test_bars_are_as_long_as_their_values_and_go_down_below_zero() -> None:
    series = [Bars("a", [2.0, -1.0]), Bars("b", [None, 4.0])]
    figure = bar_chart("bars", "t", "c", ["one", "two"], series, ("x", "y"), str, NUMBERS)
    first, second, third = [bar for bar in parts(figure, "rect", "bar") if len(bar)]
    heights = [float(bar.get("height") or 0) for bar in (first, second, third)]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.2)
    zero = float(first.get("y") or 0) + heights[0]
    assert float(second.get("y") or 0) == pytest.approx(zero, abs=0.1)
    assert bar_chart("bars", "t", "c", ["one"], [Bars("a", [None])], ("x", "y"), str, NUMBERS) is None


def test_cells_are_stronger_the_smaller_and_the_best_has_the_star() -> None:
    cells = Entries([[5.0, 9.0, 4.0], [11.0, 2.0, math.inf]], limit=10.0)
    assert cells.best == (1, 1)
    looks = [cells.look(value) for value in (2.0, 4.0, 5.0, 9.0, 10.0)]
    assert looks[0] == "h9" and looks[-1] == "h0"
    assert all(above >= below for above, below in pairwise(int(look[1]) for look in looks))
    assert (cells.look(11.0), cells.look(math.inf)) == ("worse", "diverged")
    figure = heat_map("map", "t", "c", Side("θ", ["1", "2"]), Side("λ", [".1", ".2", ".3"]), cells, NUMBERS)
    told = [cell.findtext("{http://www.w3.org/2000/svg}title") for cell in parts(figure, "rect", "cell")]
    assert [words for words in told if words] == [
        *("θ 1, λ .1: 5", "θ 1, λ .2: 9", "θ 1, λ .3: 4", "θ 2, λ .1: 11", "θ 2, λ .2: 2", "θ 2, λ .3: diverged"),
    ]
    (star,) = parts(figure, "path", "star")
    best = next(cell for cell in parts(figure, "rect", "h9") if len(cell))
    x, y = map(float, re.findall(r"[\d.]+", star.get("transform") or ""))
    assert float(best.get("x") or 0) < x < float(best.get("x") or 0) + float(best.get("width") or 0)
    assert float(best.get("y") or 0) < y < float(best.get("y") or 0) + float(best.get("height") or 0)


def test_a_grid_without_differences_is_all_best() -> None:
    assert Entries([[3.0, 3.0]], limit=3.0).look(3.0) == "h9"
