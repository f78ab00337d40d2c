"""Named points as they are drawn."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import Point, Points
from stages.charts.points import GAP, placed_labels, points_axes
from stages.charts.sheet import drawing_style
from stages.charts.titles import WIDTH


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with drawing_style("points"):
        yield


def test_points_have_their_names_and_one_that_is_not_known_has_none() -> None:
    plot = Points([Point("a", 1.0, -0.1), Point("b", None, -0.2), Point("c", 3.0, None)], "s", "y")
    axes = points_axes(plot)
    assert [text.get_text() for text in axes.texts] == ["a"]
    assert np.asarray(axes.lines[0].get_xydata()).tolist() == [[1.0, -0.1]]
    assert Points([Point("b", None, -0.2)], "s", "y").empty
    assert plot.numbers[1:] == [("a", 1.0, -0.1), ("b", None, -0.2), ("c", 3.0, None)]


@pytest.mark.parametrize(
    ("costs", "ticks"),
    [([2.0, 4.0], ["2", "2.5", "3", "3.5", "4"]), ([2.0, 90.0], ["2", "5", "10", "20", "50"])],
)
def test_a_wide_range_of_costs_is_logarithmic(costs: list[float], ticks: list[str]) -> None:
    axes = points_axes(Points([Point(str(x), x, x) for x in costs], "s", "y"))
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks


PLACE = st.tuples(st.floats(0, WIDTH), st.floats(0, 300))


@given(st.lists(PLACE, min_size=1, max_size=20))
def test_no_label_lies_on_another_or_leaves_the_axes_to_the_right(
    points: list[tuple[float, float]],
) -> None:
    labels = placed_labels(["neural-cache"] * len(points), points, WIDTH)
    assert not any(first.touches(second) for first, second in combinations(labels, 2))
    assert all(label.left + label.width <= WIDTH for label in labels)


def test_a_label_stands_beside_its_point_where_there_is_room() -> None:
    alone, near = placed_labels(["a", "b"], [(10, 50), (10, 48)], WIDTH)
    assert (alone.left, alone.middle) == (10 + GAP, 50)
    assert near.middle == 48 - 13


def test_a_label_lies_on_no_point() -> None:
    before, _ = placed_labels(["neural-cache", "b"], [(10, 50), (40, 50)], WIDTH)
    assert abs(before.middle - 50) >= 13
