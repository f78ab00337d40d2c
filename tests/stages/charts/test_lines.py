"""Lines as they are drawn."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from stages.charts.data import Level, Line, Lines
from stages.charts.lines import MAX_POINTS, lines_axes, thinned
from stages.charts.sheet import LETTER, drawing_style, fitted
from stages.charts.titles import WIDTH


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with drawing_style("lines"):
        yield


def points(line: Line2D) -> list[tuple[float, float]]:
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[arg-type]


def labels(axes: Axes) -> list[str]:
    """Numbers below the horizontal axis."""
    return [label.get_text() for label in axes.get_xticklabels()]


def test_what_is_no_number_is_left_out() -> None:
    drawn = Line("a", [(1, 1.0), (2, None), (3, math.inf), (4, 2.0)])
    nothing = Line("b", [(1, None)])
    line, signs = lines_axes(Lines([drawn, nothing], "x", "y")).lines
    assert points(line) == points(signs) == [(1, 1.0), (4, 2.0)]
    assert Lines([nothing], "x", "y").empty


def test_a_level_is_drawn_across() -> None:
    plot = Lines([Line("a", [(1, 1.0), (2, 2.0)])], "x", "y", level=Level("plain", 3.0))
    *_, level = lines_axes(plot).lines
    assert points(level) == [(0, 3.0), (1, 3.0)]


@pytest.mark.parametrize("far", [1000.0, 1e9, 1e300])
def test_what_explodes_is_cut_off_and_leaves_the_rest_to_be_seen(far: float) -> None:
    line = Line("a", [(1, 60.0), (2, 100.0), (3, far), (4, 90.0)])
    axes = lines_axes(Lines([line], "x", "y", level=Level("plain", 100.0)))
    path, signs, _ = axes.lines
    bottom, top = axes.get_ylim()
    assert 50 < bottom < 60
    assert 200 < top < 210
    assert top < points(path)[2][1] < 2000
    assert len(points(signs)) == 3


def test_nothing_of_a_memory_has_a_place_beside_sizes_that_reach_far() -> None:
    sizes = [0, 1, 4, 16, 64, 256]
    axes = lines_axes(Lines([Line("a", [(x, 1.0) for x in sizes])], "x", "y", ticks=sizes))
    places = axes.get_xaxis().get_transform().transform(sizes)
    assert places == pytest.approx([math.log1p(x) for x in sizes])
    assert labels(axes) == ["0", "1", "4", "16", "64", "256"]


def test_numbers_that_reach_far_stand_at_equal_distances() -> None:
    ticks = [1.0, 10.0, 100.0, 1000.0]
    line = Line("a", [(x, 7 * x) for x in ticks])
    axes = lines_axes(Lines([line], "x", "y", ticks=ticks))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    even = lines_axes(Lines([line], "x", "y", ticks=ticks, even=True))
    assert even.get_yscale() == "linear"


def test_one_point_has_a_place() -> None:
    axes = lines_axes(Lines([Line("a", [(5, 2.0)])], "x", "y"))
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    assert left < 5 < right
    assert bottom < 2 < top


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=3000), st.integers(4, 500))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float], max_points: int) -> None:
    line = list(enumerate(values))
    result = thinned(line, max_points)
    assert len(result) <= max_points
    assert set(result) <= set(line)
    assert result == sorted(result)
    assert (result[0], result[-1]) == (line[0], line[-1])
    assert {max(values), min(values)} <= {value for _, value in result}


def test_long_lines_are_thinned_and_have_no_signs() -> None:
    plot = Lines([Line("a", [(step, math.sin(step)) for step in range(10_000)])], "x", "y")
    (line,) = lines_axes(plot).lines
    assert len(points(line)) <= MAX_POINTS


LONG = "lm, knn-lm then neural-cache: shakespeare-first-252.0kB-of-1.1MB-of-all-the-plays-there-are.txt test"


def test_labels_that_are_longer_than_a_line_keep_what_tells_them_apart() -> None:
    cut = [fitted(label) for label in (LONG, f"{LONG}, by chance", "plain")]
    assert cut[0].endswith(".txt test") and cut[1].endswith("test, by chance") and cut[2] == "plain"
    assert all(LETTER * len(label) <= WIDTH for label in cut)
    assert all(label.startswith("lm, knn-lm then") and "…" in label for label in cut[:2])


@pytest.mark.parametrize("label", ["a", "a name", "a longer name", LONG])
def test_entries_of_a_legend_do_not_overlap(label: str) -> None:
    lines = [Line(f"{label} {place}", [(1, 1.0), (2, place)]) for place in range(6)]
    axes = lines_axes(Lines(lines, "x", "y"))
    sheet = axes.figure
    sheet.draw_without_rendering()  # type: ignore[union-attr]
    legend = axes.get_legend()
    assert legend is not None
    boxes = [text.get_window_extent() for text in legend.get_texts()]
    handles = [handle.get_window_extent() for handle in legend.legend_handles if handle]
    assert len(boxes) == len(handles) == 6
    for place, box in enumerate(boxes):
        others = [*boxes[place + 1 :], *handles]
        assert not any(box.overlaps(other) for other in others)
        assert box.y0 >= axes.get_window_extent().y1
        assert box.x1 <= axes.get_window_extent().x1 + 60
