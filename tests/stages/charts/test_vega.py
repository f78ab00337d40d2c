"""Lines, bars, outlines and cells as the drawing library is asked for them."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import (
    Bars,
    HeatMap,
    Histogram,
    Level,
    Line,
    Lines,
    Series,
    Share,
    Side,
    SmallerIsBetter,
)
from stages.charts.palette import CELLS, LIGHT, SHARES
from stages.charts.vega import (
    LETTER,
    POINTS_DRAWN,
    WIDTH,
    bars_spec,
    best,
    colour_of,
    fitted,
    heat_map_spec,
    histogram_spec,
    lines_spec,
    thinned,
)


def values(spec: dict[str, Any], mark: str) -> list[list[dict[str, Any]]]:
    """The data of each layer of a mark."""
    marks = [(one["mark"], one["data"]["values"]) for one in spec["layer"]]
    return [
        held
        for name, held in marks
        if held and (name if isinstance(name, str) else name["type"]) == mark
    ]


def test_what_is_no_number_is_left_out() -> None:
    plot = Lines(
        [Line("a", [(1, 1.0), (2, None), (3, math.inf), (4, 2.0)]), Line("b", [(1, None)])],
        "x",
        "y",
    )
    assert values(lines_spec(plot), "line") == [[{"x": 1, "y": 1.0}, {"x": 4, "y": 2.0}]]
    assert not plot.empty and Lines(plot.lines[1:], "x", "y").empty


def test_a_level_is_drawn_across() -> None:
    plot = Lines([Line("a", [(1, 1.0), (2, 2.0)])], "x", "y", level=Level("plain", 3.0))
    assert values(lines_spec(plot), "rule") == [[{"y": 3.0}]]


@pytest.mark.parametrize("far", [1000.0, 1e9, 1e300])
def test_what_explodes_is_cut_off_and_leaves_the_rest_to_be_seen(far: float) -> None:
    plot = Lines(
        [Line("a", [(1, 60.0), (2, 100.0), (3, far), (4, 90.0)])],
        "x",
        "y",
        level=Level("plain", 100.0),
    )
    spec = lines_spec(plot)
    ((*_, outside, _),) = values(spec, "line")
    (seen,) = values(spec, "point")
    assert 200 < outside["y"] < 2000 and len(seen) == 3
    (line,) = (
        layer
        for layer in spec["layer"]
        if layer["mark"] != "point" and layer["mark"]["type"] == "line"
    )
    assert line["mark"]["clip"] and line["encoding"]["y"]["scale"]["domain"] == [60.0, 200.0]


def test_nothing_of_a_memory_has_a_place_beside_sizes_that_reach_far() -> None:
    sizes = [0, 1, 4, 16, 64, 256]
    spec = lines_spec(Lines([Line("a", [(x, 1.0) for x in sizes])], "x", "y", ticks=sizes))
    scale = spec["layer"][0]["encoding"]["x"]["scale"]
    assert (scale["type"], scale["constant"]) == ("symlog", 1)


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
    plot = Lines([Line("a", [(step, math.sin(step)) for step in range(10_000)])], "x", "y")
    assert len(values(lines_spec(plot), "line")[0]) <= POINTS_DRAWN and not values(
        lines_spec(plot), "point"
    )


def test_bars_have_their_values_and_intervals_and_words() -> None:
    plot = Bars(
        ["one", "two"],
        [Series("a", [2.0, -1.0], [(1.0, 3.0), None]), Series("b", [None, 4.0])],
        "x",
        "y",
    )
    (bars,) = values(bars_spec(plot), "bar")
    assert [(bar["x"], bar["series"], bar["y"]) for bar in bars] == [
        ("one", 0, 2.0),
        ("two", 0, -1.0),
        ("two", 1, 4.0),
    ]
    assert [bar["words"] for bar in bars] == ["a, one: +2", "a, two: -1", "b, two: +4"]
    assert values(bars_spec(plot), "rule") == [
        [{"y": 0}],
        [{"x": "one", "series": 0, "y": 1.0, "y2": 3.0}],
    ]
    assert Bars(["one"], [Series("a", [None])], "x", "y").empty


@pytest.mark.parametrize("groups, turned", [(4, False), (12, True)])
def test_names_of_bars_that_would_touch_are_turned(groups: int, turned: bool) -> None:
    names = [f"a name {place:02}" for place in range(groups)]
    axis = bars_spec(Bars(names, [Series("a", [1.0] * groups)], "x", "y"))["layer"][0]["encoding"][
        "x"
    ]["axis"]
    assert (axis["labelAngle"] != 0) == turned


def test_outlines_of_a_histogram_begin_and_end_at_the_ground() -> None:
    plot = Histogram(
        [0.0, 0.5, 1.0], [Series("a", [0.25, 0.75]), Series("b", [0.5, 0.5])], 0.6, "g"
    )
    outline, _ = values(histogram_spec(plot), "line")
    assert [(step["x"], step["y"]) for step in outline] == [
        (0.0, 0),
        (0.0, 0.25),
        (0.5, 0.75),
        (1.0, 0),
    ]
    assert values(histogram_spec(plot), "area") == [outline]
    assert values(histogram_spec(plot), "rule") == [[{"x": 0.6}]]


def grid(values: list[list[float]], limit: float, label: str = "plain") -> HeatMap:
    sides = Side("θ", ["1", "2"][: len(values)]), Side("λ", [".1", ".2", ".3"][: len(values[0])])
    return HeatMap(values, *sides, SmallerIsBetter(limit, label))


def test_cells_are_stronger_the_smaller_and_the_best_has_the_star() -> None:
    plot = grid([[5.0, 9.0, 4.0], [11.0, 2.0, math.inf]], limit=10.0)
    assert best(plot.values) == (1, 1)
    looks = [CELLS.index(colour_of(value, plot)) for value in (2.0, 4.0, 5.0, 9.0, 10.0)]
    assert (looks[0], looks[-1]) == (9, 0)
    assert all(above >= below for above, below in pairwise(looks))
    assert (colour_of(11.0, plot), colour_of(math.inf, plot)) == (LIGHT["worse"], LIGHT["diverged"])
    spec = heat_map_spec(plot)
    assert [cell["words"] for cell in values(spec, "rect")[0]] == [
        *(
            "θ 1, λ .1: 5",
            "θ 1, λ .2: 9",
            "θ 1, λ .3: 4",
            "θ 2, λ .1: 11",
            "θ 2, λ .2: 2",
            "θ 2, λ .3: diverged",
        ),
    ]
    assert values(spec, "point") == [[{"x": 1, "y": 1, "words": "best: 2"}]]


def test_a_grid_without_differences_is_all_best() -> None:
    assert colour_of(3.0, grid([[3.0, 3.0]], limit=3.0)) == CELLS[-1]


def test_a_cell_that_equals_the_model_without_memory_is_not_worse() -> None:
    assert colour_of(10.000001, grid([[5.0, 9.0]], limit=10.0)) == CELLS[0]


def test_shares_have_the_colours_of_their_ends_and_room_for_words_below() -> None:
    texts = [f"word {place}" for place in range(80)]
    plot = HeatMap(
        [[0.0, 0.5, 1.0]] * 80,
        Side("", texts, turned=True),
        Side("", [""] * 3),
        Share("memory", "context"),
    )
    places = [SHARES.index(colour_of(value, plot)) for value in (-0.1, 0.0, 0.5, 1.0, 1.1)]
    assert places == [0, 0, 5, 10, 10]
    assert heat_map_spec(plot)["width"] >= 12 * 80


def test_labels_that_are_longer_than_a_line_keep_what_tells_them_apart() -> None:
    long = "lm, knn-lm then neural-cache: shakespeare-first-252.0kB-of-1.1MB-of-all-the-plays-there-are.txt test"
    cut = [fitted(label) for label in (long, f"{long}, by chance", "plain")]
    assert cut[0].endswith(".txt test") and cut[1].endswith("test, by chance") and cut[2] == "plain"
    assert all(LETTER * len(label) <= WIDTH for label in cut)
    assert all(label.startswith("lm, knn-lm then neural") and "…" in label for label in cut[:2])
