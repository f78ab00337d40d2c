"""Cells of heat maps as they are drawn."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from stages.charts.cells import CELL, best, colour_of, heat_map_axes
from stages.charts.data import HeatMap, Share, Side, SmallerIsBetter
from stages.charts.palette import CELLS, LIGHT, SHARES
from stages.charts.sheet import drawing_style, sheet_of


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with drawing_style("cells"):
        yield


def grid(values: list[list[float]], limit: float, label: str = "plain") -> HeatMap:
    across = Side("θ", ["1", "2"][: len(values)])
    up = Side("λ", [".1", ".2", ".3"][: len(values[0])])
    return HeatMap(values, across, up, SmallerIsBetter(limit, label))


def test_cells_are_stronger_the_smaller_and_the_best_has_the_star() -> None:
    plot = grid([[5.0, 9.0, 4.0], [11.0, 2.0, math.inf]], limit=10.0)
    assert best(plot.values) == (1, 1)
    looks = [CELLS.index(colour_of(value, plot)) for value in (2.0, 4.0, 5.0, 9.0, 10.0)]
    assert (looks[0], looks[-1]) == (9, 0)
    assert all(above >= below for above, below in pairwise(looks))
    assert (colour_of(11.0, plot), colour_of(math.inf, plot)) == (LIGHT["worse"], LIGHT["diverged"])
    axes = heat_map_axes(plot)
    (star,) = axes.lines
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([1.5], [1.5])  # type: ignore[arg-type]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "at θ 2, λ .2",
        "worse than plain",
        "diverged",
    ]
    assert [text.get_text() for text in sheet_of(axes).texts] == ["best 2", "10 plain"]


def test_every_cell_is_drawn_once() -> None:
    plot = grid([[5.0, 9.0, 4.0], [11.0, 2.0, math.inf]], limit=10.0)
    corners = []
    for patch in heat_map_axes(plot).patches:
        corners += np.asarray(patch.get_path().vertices)[::5].tolist()
    assert sorted(corners) == [[x, y] for x in range(2) for y in range(3)]


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
    axes = heat_map_axes(plot)
    assert axes.get_window_extent().width == pytest.approx(CELL * 80)
    assert [label.get_text() for label in axes.get_xticklabels()] == texts


def test_labels_without_room_are_left_out_in_turn() -> None:
    labels = [f"number {place}" for place in range(30)]
    plot = HeatMap([[1.0]] * 30, Side("x", labels), Side("y", ["1"]), Share("none", "all"))
    axes = heat_map_axes(plot)
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert 3 <= len(boxes) < 30
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
