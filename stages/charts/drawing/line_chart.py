"""Lines over a number: perplexity against memory, loss against steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.drawing import axes, shapes
from stages.charts.drawing.figure import Figure
from stages.charts.drawing.scale import Scale, scale_over
from stages.numbers import number, percent, spread_out

MOST_POINTS = 400
"""Of a line in the drawing."""
MOST_MARKED = 20
"""Points of a line that has a sign at each."""


@dataclass(frozen=True)
class Line:
    """Points (x, y) from left to right; those that are no finite number are left out."""

    label: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    look: int | None = None
    """Number of its colour and sign; None: its place among the lines."""

    @property
    def finite(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y is not None and math.isfinite(y)]


@dataclass(frozen=True)
class Axes:
    """Names of the axes, and how numbers on them are spread and told."""

    across: str
    up: str
    x_values: Sequence[float] | None = None
    """Where to put numbers under the area; None: at round ones."""
    percent: bool = False
    """Whether numbers upwards are shares."""
    even: bool = False
    """Whether the axis upwards is never logarithmic."""
    level: float | None = None
    """A value across the whole area, dashed: the model without memory."""
    level_label: str = ""


def line_chart(
    name: str,
    title: str,
    caption: str,
    lines: Sequence[Line],
    described: Axes,
    table: tuple[Sequence[str], Sequence[Sequence[Any]]],
) -> Figure | None:
    """A chart of lines, each with a colour and a sign of its own; None without a finite point.

    Args:
        table: columns and rows of its numbers.
    """
    drawn = [line for line in lines if line.finite]
    if not drawn:
        return None
    labels = [line.label for line in drawn] + ([described.level_label] if described.level is not None else [])
    area = axes.plot_area(labels)
    across, up = _scales(drawn, described, area)
    places = described.x_values if described.x_values is not None else across.ticks(7)
    told = percent if described.percent else number
    elements = [
        *axes.upward_axis(area, up, described.up, told),
        *axes.across_axis(area, [(across(x), number(x)) for x in places], described.across),
        *axes.legend(labels, lambda place, x, y: _sign(drawn, place, x, y)),
    ]
    if described.level is not None:
        height = up(described.level)
        elements.append(shapes.line((area.left, height), (area.right, height), "level"))
    for place, line in enumerate(drawn):
        elements += _line(line, place, across, up, described)
    return Figure(name, title, caption, axes.WIDTH, area.height, elements, *table)


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most `most` points that look the same: the first, the last, and the extremes of equal stretches."""
    if len(points) <= most:
        return list(points)
    stretches = most // 2 - 1
    kept = [points[0], points[-1]]
    for part in range(stretches):
        held = points[part * len(points) // stretches : (part + 1) * len(points) // stretches]
        kept += [min(held, key=lambda p: p[1]), max(held, key=lambda p: p[1])]
    return sorted(dict.fromkeys(kept))


def _scales(lines: Sequence[Line], described: Axes, area: axes.Area) -> tuple[Scale, Scale]:
    xs = [x for line in lines for x, _ in line.finite]
    ys = [y for line in lines for _, y in line.finite]
    if described.level is not None:
        ys.append(described.level)
    spread = spread_out(xs) and described.x_values is not None
    logarithmic = spread_out(ys) and not (described.percent or described.even)
    across = scale_over(xs, area.left + 8, area.right - 8, logarithmic=spread, rounded=False)
    return across, scale_over(ys, area.bottom, area.top, logarithmic=logarithmic)


def _line(line: Line, place: int, across: Scale, up: Scale, described: Axes) -> list[str]:
    look = place if line.look is None else line.look
    shown = thinned(line.finite)
    style = f"line {axes.series_look(look)}" + (" dashed" if line.dashed else "")
    drawn = [shapes.polyline([(across(x), up(y)) for x, y in shown], style)]
    if len(shown) > MOST_MARKED:
        return drawn
    told = percent if described.percent else number
    return drawn + [
        shapes.mark(
            (across(x), up(y)),
            axes.marker_of(look),
            f"mark {axes.series_look(look)}",
            f"{line.label}: {told(y)} at {described.across} {number(x)}",
        )
        for x, y in shown
    ]


def _sign(lines: Sequence[Line], place: int, x: float, y: float) -> list[str]:
    """What stands before a label of the legend."""
    if place >= len(lines):
        return [shapes.line((x, y), (x + 22, y), "level")]
    line = lines[place]
    look = place if line.look is None else line.look
    style = f"line {axes.series_look(look)}" + (" dashed" if line.dashed else "")
    drawn = [shapes.polyline([(x, y), (x + 22, y)], style)]
    if len(line.finite) <= MOST_MARKED:
        drawn.append(shapes.mark((x + 11, y), axes.marker_of(look), f"mark {axes.series_look(look)}"))
    return drawn
