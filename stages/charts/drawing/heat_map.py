"""A quantity over two settings, as coloured cells: the smaller, the stronger."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.drawing import axes, shapes
from stages.charts.drawing.figure import Figure
from stages.numbers import number

LEVELS = 10
"""Colours that the style has for cells: classes h0 (weak) … h9 (strong)."""
CELL_HEIGHT = 15.0
KEY_HEIGHT = 46.0
SWATCH = 19.0


@dataclass(frozen=True)
class Side:
    """One setting: its name, and a label for each of its values."""

    name: str
    labels: Sequence[str]


@dataclass(frozen=True)
class Entries:
    """A value above 0 for each place across and upwards; infinite where there is none."""

    values: Sequence[Sequence[float]]
    limit: float
    """Where colours end: what lies above is worse than doing without."""
    limit_label: str = ""

    @property
    def best(self) -> tuple[int, int]:
        """The place of the smallest, the first of equals."""
        places = [(across, up) for across, column in enumerate(self.values) for up in range(len(column))]
        return min(places, key=lambda place: self.values[place[0]][place[1]])

    @property
    def smallest(self) -> float:
        across, up = self.best
        return self.values[across][up]

    def look(self, value: float) -> str:
        """The class of a cell: levels are finer near the best."""
        if not math.isfinite(value):
            return "diverged"
        if value > self.limit:
            return "worse"
        reach = math.log(self.limit / self.smallest)
        share = math.sqrt(math.log(value / self.smallest) / reach) if reach > 0 else 0.0
        return f"h{LEVELS - 1 - min(int(share * LEVELS), LEVELS - 1)}"


def heat_map(
    name: str,
    title: str,
    caption: str,
    across: Side,
    up: Side,
    cells: Entries,
    table: tuple[Sequence[str], Sequence[Sequence[Any]]],
) -> Figure:
    """Entries over two settings, a star in the best of them, and what the colours mean.

    Args:
        table: columns and rows of its numbers.
    """
    area = _area(len(up.labels))
    width = (area.right - area.left) / len(across.labels)
    height = (area.bottom - area.top) / len(up.labels)
    elements = []
    for x, column in enumerate(cells.values):
        for y, value in enumerate(column):
            corner = area.left + x * width, area.bottom - (y + 1) * height
            told = number(value) if math.isfinite(value) else "diverged"
            words = f"{across.name} {across.labels[x]}, {up.name} {up.labels[y]}: {told}"
            elements.append(shapes.rectangle(corner, width, height, f"cell {cells.look(value)}", words))
    x, y = cells.best
    star = area.left + (x + 0.5) * width, area.bottom - (y + 0.5) * height
    elements.append(shapes.mark(star, shapes.STAR, "star", f"best: {number(cells.smallest)}"))
    places = [(area.left + (place + 0.5) * width, label) for place, label in enumerate(across.labels)]
    elements += [*axes.across_axis(area, places, across.name), *_upward(area, height, up), *_key(area, cells)]
    return Figure(name, title, caption, axes.WIDTH, area.height + KEY_HEIGHT, elements, *table)


def _area(rows: int) -> axes.Area:
    return axes.Area(axes.LEFT, 10, axes.WIDTH - axes.RIGHT, 10 + CELL_HEIGHT * max(rows, 4))


def _upward(area: axes.Area, height: float, up: Side) -> list[str]:
    labels = [
        shapes.text(area.left - 6, area.bottom - (place + 0.5) * height + 4, label, "number", "end")
        for place, label in enumerate(up.labels)
    ]
    return [*labels, shapes.text(12, (area.top + area.bottom) / 2, up.name, "axis", "middle", turned=True)]


def _key(area: axes.Area, cells: Entries) -> list[str]:
    """The colours from best to the limit, and the signs of what lies beyond."""
    top, left = area.height + 4, area.left
    drawn = [
        shapes.rectangle((left + place * SWATCH, top), SWATCH, 11, f"cell h{LEVELS - 1 - place}")
        for place in range(LEVELS)
    ]
    end = left + LEVELS * SWATCH
    drawn.append(shapes.text(left, top + 26, f"best {number(cells.smallest)}", "number"))
    drawn.append(shapes.text(end, top + 26, f"{number(cells.limit)} {cells.limit_label}", "number", "end"))
    held = [value for column in cells.values for value in column]
    beyond = [("worse", "worse")] if any(cells.limit < v < math.inf for v in held) else []
    beyond += [] if all(map(math.isfinite, held)) else [("diverged", "diverged")]
    x = end + 24
    for look, words in beyond:
        drawn.append(shapes.rectangle((x, top), SWATCH, 11, f"cell {look}"))
        drawn.append(shapes.text(x + SWATCH + 6, top + 10, words, "number"))
        x += SWATCH + 24 + axes.LETTER * len(words)
    return drawn
