"""Drawing of lines over a number."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from stages.charts.data import Line, Lines
from stages.charts.palette import LIGHT, SERIES
from stages.charts.sheet import DASHES, HEIGHT, LETTER, add_legend, new_axes, round_ticks
from stages.charts.titles import WIDTH
from stages.numbers import number, percent, spread_out

MAX_POINTS = 400
"""Maximum number of points of a line in the drawing."""
MAX_MARKED = 24
"""Maximum number of points of a line with a sign at every point."""
HIGHEST = 2
"""End of the vertical axis, in levels, so that a value that explodes leaves the rest visible."""
SOLID: Literal["-"] = "-"
SIGNS = ("o", "s", "^", "D", "v", "P")
"""Circle, square, triangle, diamond, triangle on its tip, cross: distinct without colour."""
PADDING = 10.0
"""Distance of the outermost points from the edges."""


def lines_axes(plot: Lines) -> Axes:
    """Lines, each with its own colour and sign; values above the axis are cut off."""
    axes = new_axes()
    highest = math.inf if plot.level is None else HIGHEST * plot.level.value
    handles = []
    # all coordinates, which decide on the scales
    xs: list[float] = []
    ys: list[float] = []
    for place, line in enumerate(plot.lines):
        if line.finite:
            handles.append(_draw_line(axes, line, place, highest))
            for x, y in line.finite:
                xs.append(x)
                ys.append(min(y, highest))

    if plot.level is not None:
        value = plot.level.value
        level = axes.axhline(value, color=LIGHT["ink"], linestyle=DASHES, linewidth=1.4)
        level.set_label(plot.level.label)
        handles.append(level)
        ys.append(value)

    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    axes.grid(axis="y")
    scale_across(axes, plot.ticks, xs)
    scale_up(axes, ys, percent_ticks=plot.percent, even=plot.even)
    add_legend(axes, handles)
    return axes


def _draw_line(axes: Axes, line: Line, place: int, highest: float) -> Line2D:
    """Draw a line, with signs if it has few points; returns its handle for the legend."""
    look = place if line.look is None else line.look
    colour = SERIES[look % len(SERIES)]
    dashes = DASHES if line.dashed else SOLID
    # A point far above the axis is drawn nearer to it, since coordinates in SVG cannot be 1e300.
    path = [(x, min(y, 9 * highest)) for x, y in thinned(line.finite)]
    axes.plot(*zip(*path, strict=True), color=colour, linestyle=dashes)

    handle = Line2D([], [], color=colour, linestyle=dashes, label=line.label)
    if len(line.finite) <= MAX_MARKED:
        sign = {
            "marker": SIGNS[look % len(SIGNS)],
            "markersize": 7,
            "markerfacecolor": colour,
            "markeredgecolor": LIGHT["paper"],
            "markeredgewidth": 0.8,
        }
        visible = [(x, y) for x, y in line.finite if y <= highest]
        if visible:
            axes.plot(*zip(*visible, strict=True), linestyle="none", zorder=3, **sign)  # type: ignore[arg-type]
        handle.set(**sign)
    return handle


def thinned(
    points: Sequence[tuple[float, float]], max_points: int = MAX_POINTS
) -> list[tuple[float, float]]:
    """At most `max_points` points with the same appearance.

    These are the first, the last, and the extremes of equal stretches.

    >>> thinned([(0, 1.0), (1, 9.0), (2, 2.0), (3, 0.0), (4, 5.0)], max_points=4)
    [(0, 1.0), (1, 9.0), (3, 0.0), (4, 5.0)]
    """
    if len(points) <= max_points:
        return list(points)
    stretches = max_points // 2 - 1
    result = [points[0], points[-1]]
    for part in range(stretches):
        start = part * len(points) // stretches
        stop = (part + 1) * len(points) // stretches
        stretch = points[start:stop]
        # Extremes instead of means, so that a spike in a loss stays visible.
        result.append(min(stretch, key=lambda point: point[1]))
        result.append(max(stretch, key=lambda point: point[1]))
    return sorted(dict.fromkeys(result))


def scale_across(axes: Axes, ticks: Sequence[float] | None, xs: Sequence[float]) -> None:
    """Horizontal axis of points at `xs`: logarithmic if ticks span a wide range, with a place for
    zero; without ticks at round numbers.
    """
    low = min(xs)
    high = max(xs)
    place: Callable[[float], float] = float
    positive = [x for x in xs if x > 0]
    if ticks is not None and low >= 0 and spread_out(positive):
        if low > 0:
            axes.set_xscale("log")
            place = math.log
        else:
            unit = min(positive)
            # A logarithm has no place for zero; log(1 + x / unit) has.
            axes.set_xscale(
                "function",
                functions=(
                    lambda x: np.log1p(np.maximum(x, -unit / 2) / unit),
                    lambda y: unit * np.expm1(y),
                ),
            )
            place = lambda x: math.log1p(x / unit)  # noqa: E731

    _set_limits(axes.set_xlim, axes.get_xaxis().get_transform(), low, high, PADDING / WIDTH)
    shown = round_ticks(low, high, 7) if ticks is None else _spaced_ticks(ticks, place)
    axes.set_xticks(shown, [number(tick) for tick in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _spaced_ticks(ticks: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """The ticks whose numbers do not touch the number before.

    Args:
        place: gives the place of a tick along the axis, in any unit.
    """
    span = place(max(ticks)) - place(min(ticks))
    shown = [ticks[0]]
    for tick in ticks[1:]:
        last = shown[-1]
        distance = WIDTH * (place(tick) - place(last)) / span
        # Half of each number lies between its tick and the other.
        letters = (len(number(tick)) + len(number(last))) / 2
        if distance >= LETTER * (letters + 1):
            shown.append(tick)
    return shown


def scale_up(axes: Axes, ys: Sequence[float], *, percent_ticks: bool, even: bool) -> None:
    """Vertical axis of points at `ys`: logarithmic if they span a wide range, unless shares or
    `even`.
    """
    low = min(ys)
    high = max(ys)
    if high == low:
        # A level line is in the middle.
        room = abs(high) / 10 or 1.0
        low -= room
        high += room

    is_logarithmic = spread_out(ys) and not (percent_ticks or even)
    if is_logarithmic:
        axes.set_yscale("log")
    _set_limits(axes.set_ylim, axes.get_yaxis().get_transform(), low, high, PADDING / HEIGHT)

    bottom, top = axes.get_ylim()
    ticks = _powers_of_ten(low, high) if is_logarithmic else []
    if not ticks:
        ticks = round_ticks(bottom, top)
    shown = [tick for tick in ticks if bottom <= tick <= top]
    to_text = percent if percent_ticks else number
    axes.set_yticks(shown, [to_text(tick) for tick in shown])
    axes.yaxis.set_minor_locator(NullLocator())


def _powers_of_ten(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis, with 2 and 5 times each power if powers are few.

    >>> _powers_of_ten(20, 80)
    [10.0, 20.0, 50.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    factors = (1, 2, 5) if len(powers) < 4 else (1,)
    return [factor * 10.0**power for power in powers for factor in factors]


def _set_limits(set_limits, transform, low: float, high: float, padding: float) -> None:  # type: ignore[no-untyped-def]
    """Limits with `padding`, a share of the axis, on both sides of the outermost points."""
    start, stop = transform.transform([low, high])
    room = padding * (stop - start) or 0.5
    set_limits(*transform.inverted().transform([start - room, stop + room]))
