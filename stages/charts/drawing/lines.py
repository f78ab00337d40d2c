"""Lines over a number: perplexity against memory, loss against steps."""

from collections.abc import Sequence
from itertools import pairwise

from stages.charts.data import Line, Lines
from stages.charts.drawing import axes, shapes
from stages.charts.drawing.figure import Drawing
from stages.charts.drawing.scale import Scale, scale_over
from stages.numbers import number, percent, spread_out

POINTS_DRAWN = 400
"""Maximum number of points of a line in the drawing."""
MOST_MARKED = 24
"""Points of a line that has a sign at each."""
HIGHEST = 2
"""Where the axis upwards ends, in levels: what explodes must leave the rest to be seen."""


def draw_lines(plot: Lines) -> Drawing:
    """Lines, each with a colour and a sign of its own."""
    drawn = [line for line in plot.lines if line.finite]
    labels = [line.label for line in drawn] + ([plot.level.label] if plot.level is not None else [])
    area = axes.plot_area(labels)
    across, up = _scales(drawn, plot, area)
    places = plot.ticks if plot.ticks is not None else across.ticks(7)
    elements = [
        *axes.upward_axis(area, up, plot.up, percent if plot.percent else number),
        *axes.across_axis(area, [(across(x), number(x)) for x in places], plot.across),
        *axes.legend(labels, lambda place, x, y: _sign(drawn, place, x, y)),
    ]
    if plot.level is not None:
        height = up(plot.level.value)
        elements.append(shapes.line((area.left, height), (area.right, height), "level"))
    for place, line in enumerate(drawn):
        elements += _line(line, place, across, up, plot)
    return Drawing(axes.WIDTH, area.height, elements)


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS_DRAWN) -> list[tuple[float, float]]:
    """At most `most` points that look the same: the first, the last, and the extremes of equal stretches."""
    if len(points) <= most:
        return list(points)
    stretches = most // 2 - 1
    kept = [points[0], points[-1]]
    for part in range(stretches):
        held = points[part * len(points) // stretches : (part + 1) * len(points) // stretches]
        kept += [min(held, key=lambda p: p[1]), max(held, key=lambda p: p[1])]
    return sorted(dict.fromkeys(kept))


def _scales(lines: Sequence[Line], plot: Lines, area: axes.Area) -> tuple[Scale, Scale]:
    up = _upward([y for line in lines for _, y in line.finite], plot, area)
    xs = [x for line in lines for x, _ in line.finite]
    left, right = area.left + 8, area.right - 8
    positive = [x for x in xs if x > 0]
    if plot.ticks is None or min(xs) < 0 or not spread_out(positive):
        return scale_over(xs, left, right, rounded=False), up
    return Scale(min(xs), max(xs), left, right, logarithmic=True, shift=0 if min(xs) else min(positive)), up


def _upward(ys: Sequence[float], plot: Lines, area: axes.Area) -> Scale:
    if plot.level is not None:
        highest = HIGHEST * plot.level.value
        ys = [*(min(y, highest) for y in ys), plot.level.value]
    logarithmic = spread_out(ys) and not (plot.percent or plot.even)
    return scale_over(ys, area.bottom, area.top, logarithmic=logarithmic)


def _line(line: Line, place: int, across: Scale, up: Scale, plot: Lines) -> list[str]:
    look = place if line.look is None else line.look
    shown = [(x, y, (across(x), up(y))) for x, y in thinned(line.finite)]
    style = f"line {axes.series_look(look)}" + (" dashed" if line.dashed else "")
    drawn = [shapes.polyline(part, style) for part in _cut_off([at for *_, at in shown], up.stop)]
    if len(shown) > MOST_MARKED:
        return drawn
    written = percent if plot.percent else number
    return drawn + [
        shapes.mark(
            at,
            axes.marker_of(look),
            f"mark {axes.series_look(look)}",
            f"{line.label}: {written(y)} at {plot.across} {number(x)}",
        )
        for x, y, at in shown
        if at[1] >= up.stop
    ]


def _cut_off(points: Sequence[shapes.Point], top: float) -> list[list[shapes.Point]]:
    """The parts of a line below the top of the area; where it leaves, it goes up to there."""
    parts: list[list[shapes.Point]] = [[point] for point in points[:1] if point[1] >= top]
    for (x0, y0), (x1, y1) in pairwise(points):
        if max(y0, y1) < top:
            continue
        crossing = (x0 + (x1 - x0) * (top - y0) / (y1 - y0), top) if min(y0, y1) < top else None
        if y0 < top and crossing is not None:
            parts.append([crossing])
        parts[-1].append(crossing if y1 < top and crossing is not None else (x1, y1))
    return parts


def _sign(lines: Sequence[Line], place: int, x: float, y: float) -> list[str]:
    """Draw the line or mark in front of a legend's label."""
    if place >= len(lines):
        return [shapes.line((x, y), (x + 22, y), "level")]
    line = lines[place]
    look = place if line.look is None else line.look
    style = f"line {axes.series_look(look)}" + (" dashed" if line.dashed else "")
    drawn = [shapes.polyline([(x, y), (x + 22, y)], style)]
    if len(line.finite) <= MOST_MARKED:
        drawn.append(shapes.mark((x + 11, y), axes.marker_of(look), f"mark {axes.series_look(look)}"))
    return drawn
