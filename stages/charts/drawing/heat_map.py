"""A quantity over two settings, or of groups of numbers token by token, as coloured cells."""

import math
from dataclasses import dataclass

from stages.charts.data import HeatMap, Side, SmallerIsBetter
from stages.charts.drawing import axes, shapes
from stages.charts.drawing.cell_colours import KEY_HEIGHT, best, colour_key, look
from stages.charts.drawing.figure import Drawing
from stages.numbers import number

CELL_HEIGHT = 15.0
LEAST_WIDTH = 15.0
"""Width of a cell below which words read upwards."""


@dataclass(frozen=True)
class Grid:
    """Where cells stand."""

    area: axes.Area
    width: float
    height: float
    """Height of one cell."""

    def corner(self, x: int, y: int) -> shapes.Point:
        """The upper left one of a cell."""
        return self.area.left + x * self.width, self.area.bottom - (y + 1) * self.height

    def middle(self, x: int, y: int) -> shapes.Point:
        left, top = self.corner(x, y)
        return left + self.width / 2, top + self.height / 2


def draw_heat_map(plot: HeatMap) -> Drawing:
    """Cells, labels on both sides, and what the colours mean; a star in the best cell, where smaller is better."""
    grid, below = _grid(plot), _below(plot.across)
    elements = [
        shapes.rectangle(grid.corner(x, y), grid.width, grid.height, f"cell {look(value, plot)}", _tooltip(plot, x, y))
        for x, column in enumerate(plot.values)
        for y, value in enumerate(column)
    ]
    elements += [*_across(grid, plot.across), *_upward(grid, plot.up)]
    if isinstance(plot.colours, SmallerIsBetter):
        x, y = best(plot.values)
        elements.append(shapes.mark(grid.middle(x, y), shapes.STAR, "star", f"best: {number(plot.values[x][y])}"))
    top = grid.area.bottom + below
    elements += colour_key(plot, grid.area.left, top)
    return Drawing(grid.area.right + axes.RIGHT, top + KEY_HEIGHT, elements)


def _tooltip(plot: HeatMap, x: int, y: int) -> str:
    """The text under the pointer."""
    value = plot.values[x][y]
    places = (f"{side.name} {side.labels[place]}".strip() for side, place in ((plot.across, x), (plot.up, y)))
    return f"{', '.join(place for place in places if place)}: {number(value) if math.isfinite(value) else 'diverged'}"


def _grid(plot: HeatMap) -> Grid:
    across, up = len(plot.values), len(plot.values[0])
    width = (axes.WIDTH - axes.LEFT - axes.RIGHT) / across
    if plot.across.turned:
        width = max(width, LEAST_WIDTH)
    height = CELL_HEIGHT * max(up, 4)
    return Grid(axes.Area(axes.LEFT, 10, axes.LEFT + width * across, 10 + height), width, height / up)


def _below(across: Side) -> float:
    """Height of the labels under the cells, and of the axis's name."""
    turned = max((axes.LETTER * len(label) for label in across.labels), default=0) + 14
    return turned if across.turned else axes.BELOW + 4


def _across(grid: Grid, side: Side) -> list[str]:
    places = [(grid.middle(place, 0)[0], label) for place, label in enumerate(side.labels)]
    if not side.turned:
        return axes.across_axis(grid.area, places, side.name)
    return [shapes.text(x + 4, grid.area.bottom + 6, label, "number", "end", turned=True) for x, label in places]


def _upward(grid: Grid, side: Side) -> list[str]:
    labels = [
        shapes.text(grid.area.left - 6, grid.middle(0, place)[1] + 4, label, "number", "end")
        for place, label in enumerate(side.labels)
        if label
    ]
    middle = (grid.area.top + grid.area.bottom) / 2
    return [*labels, shapes.text(12, middle, side.name, "axis", "middle", turned=True)]
