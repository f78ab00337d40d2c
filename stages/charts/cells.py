"""Drawing of heat maps."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path

from stages.charts.data import HeatMap, Share, Side, SmallerIsBetter
from stages.charts.palette import CELLS, LIGHT, SHARES
from stages.charts.sheet import LETTER, add_legend, new_axes, sheet_of
from stages.charts.titles import WIDTH
from stages.numbers import number

CELL = 16.0
"""Height and minimum width of a cell."""
MIN_ROWS = 4
"""Rows whose height even a map of fewer has."""
KEY_WIDTH = 160.0
KEY_HEIGHT = 11.0
KEY_ABOVE = 10.0
"""Distance of the key of colours from the cells."""
ROUNDING = 1 + 1e-6
"""Factor on the limit, so that a cell equal to the plain model does not count as worse."""


def heat_map_axes(plot: HeatMap) -> Axes:
    """Cells, labels on both sides, and a key of the colours.

    If smaller is better, a star is in the best cell.
    """
    num_columns = len(plot.values)
    num_rows = len(plot.values[0])
    width = max(WIDTH, CELL * num_columns) if plot.across.turned else WIDTH
    height = CELL * max(num_rows, MIN_ROWS)
    axes = new_axes(width, height)

    # one patch for all cells of a colour keeps the drawing small
    cells: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for column, row in product(range(num_columns), range(num_rows)):
        colour = colour_of(plot.values[column][row], plot)
        cells[colour].append((column, row))
    for colour, places in cells.items():
        axes.add_patch(_squares(places, colour))

    axes.set_xlim(0, num_columns)
    axes.set_ylim(0, num_rows)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    _write_side(axes.xaxis, plot.across, width / num_columns)
    _write_side(axes.yaxis, plot.up, math.inf)

    if isinstance(plot.colours, Share):
        _draw_key(axes, height, SHARES, f"0: {plot.colours.zero}", f"1: {plot.colours.one}")
        return axes

    column, row = best(plot.values)
    smallest = f"best {number(plot.values[column][row])}"
    limit = f"{number(plot.colours.limit)} {plot.colours.label}".strip()
    _draw_key(axes, height, CELLS[::-1], smallest, limit)
    marks = _mark_best(axes, plot, plot.colours, cells)
    add_legend(axes, marks, 2 * KEY_ABOVE + KEY_HEIGHT)
    return axes


def _squares(places: Iterable[tuple[int, int]], colour: str) -> PathPatch:
    """All cells of one colour as a single path, which keeps files small."""
    squares = []
    for column, row in places:
        corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1)]
        squares.append(Path([*corners, corners[0]], closed=True))
    path = Path.make_compound_path(*squares)
    return PathPatch(path, facecolor=colour, edgecolor=LIGHT["paper"], linewidth=0.6)


def _mark_best(
    axes: Axes, plot: HeatMap, colours: SmallerIsBetter, shown: Iterable[str]
) -> list[Artist]:
    """Draw a star in the best cell; returns the legend of it and of the colours beyond the key."""
    column, row = best(plot.values)
    star = {"marker": "*", "markersize": 12, "linestyle": "none", "markeredgewidth": 0.7}
    axes.plot(
        column + 0.5,
        row + 0.5,
        markerfacecolor=LIGHT["paper"],
        markeredgecolor=LIGHT["ink"],
        **star,  # type: ignore[arg-type]
    )
    where = (
        f"at {plot.across.name} {plot.across.labels[column]}, {plot.up.name} {plot.up.labels[row]}"
    )
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            markerfacecolor=LIGHT["paper"],
            markeredgecolor=LIGHT["ink"],
            label=where,
            **star,  # type: ignore[arg-type]
        )
    ]
    beyond = {LIGHT["worse"]: f"worse than {colours.label}", LIGHT["diverged"]: "diverged"}
    shown = set(shown)
    for colour, label in beyond.items():
        if colour in shown:
            handles.append(Patch(color=colour, label=label))
    return handles


def best(values: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Column and row of the smallest value; the first one wins a tie."""
    places = [(column, row) for column, cells in enumerate(values) for row in range(len(cells))]
    return min(places, key=lambda place: values[place[0]][place[1]])


def colour_of(value: float, plot: HeatMap) -> str:
    """The colour of a cell; if smaller is better, levels are finer near the best value."""
    if isinstance(plot.colours, Share):
        share = min(max(value, 0.0), 1.0)
        last_colour = len(SHARES) - 1
        return SHARES[round(share * last_colour)]

    limit = plot.colours.limit * ROUNDING
    if not math.isfinite(value):
        return LIGHT["diverged"]
    if value > limit:
        return LIGHT["worse"]

    # The root makes levels finer near the best value, where the settings that matter are close
    # together.
    smallest = min(min(column) for column in plot.values)
    distance = math.log(value / smallest) / math.log(limit / smallest)
    share = math.sqrt(distance)
    # the limit itself has the last level, not one beyond it
    level = min(int(share * len(CELLS)), len(CELLS) - 1)
    return CELLS[-1 - level]


def _draw_key(axes: Axes, height: float, colours: Sequence[str], zero: str, upper: str) -> None:
    """A strip of all colours above the cells, with a label at both ends."""
    sheet = sheet_of(axes)
    width = sheet.bbox.width

    # as shares of the drawing, whose size is in points
    left = (LETTER * len(zero) + 8) / width
    bottom = (height + KEY_ABOVE) / height
    key = sheet.add_axes((left, bottom, KEY_WIDTH / width, KEY_HEIGHT / height))
    key.set_axis_off()
    key.set_xlim(0, len(colours))
    for place, colour in enumerate(colours):
        key.add_patch(Rectangle((place, 0), 1, 1, color=colour, linewidth=0))

    middle = (bottom * height + KEY_HEIGHT / 2) / height
    style: dict[str, Any] = {"color": LIGHT["soft"], "va": "center_baseline"}
    right = left + (KEY_WIDTH + 6) / width
    sheet.text(left - 6 / width, middle, zero, ha="right", **style)
    sheet.text(right, middle, upper, ha="left", **style)


def _write_side(axis: Axis, side: Side, room: float) -> None:
    """Name and labels of one side; if labels are too wide, every second, third, … is shown."""
    step = 1
    if not side.turned:
        max_letters = max(map(len, side.labels), default=0)
        label_width = LETTER * (max_letters + 1)
        step = max(1, math.ceil(label_width / room))

    places = range(0, len(side.labels), step)
    axis.set_ticks([place + 0.5 for place in places])
    axis.set_ticklabels([side.labels[place] for place in places])
    if side.turned:
        for label in axis.get_ticklabels():
            label.set(rotation=90, ha="right", va="center", rotation_mode="anchor")
    axis.set_label_text(side.name)
