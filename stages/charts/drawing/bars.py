"""Bars over groups, up and down from zero."""

from collections.abc import Iterator, Sequence

from stages.charts.data import Bars
from stages.charts.drawing import axes, shapes
from stages.charts.drawing.figure import Drawing
from stages.charts.drawing.scale import Scale


def draw_bars(plot: Bars) -> Drawing:
    """One bar a series in each group."""
    labels = [one.label for one in plot.series] if len(plot.series) > 1 else []
    area = axes.plot_area(labels)
    up = _scale(list(_reached(plot)), area)
    step = (area.right - area.left) / len(plot.groups)
    places = [(area.left + (place + 0.5) * step, label) for place, label in enumerate(plot.groups)]
    elements = [
        *axes.upward_axis(area, up, plot.up, signed),
        *axes.across_axis(area, places, plot.across),
        *axes.legend(labels, lambda place, x, y: [_swatch(place, x, y)]),
        shapes.line((area.left, up(0)), (area.right, up(0)), "base"),
    ]
    width = step * 0.8 / len(plot.series)
    for place, one in enumerate(plot.series):
        for (middle, group), value in zip(places, one.values, strict=True):
            if value is not None:
                left = middle - step * 0.4 + place * width
                elements.append(_bar(left, width, value, up, place, f"{one.label}, {group}: {signed(value)}"))
        for (middle, _), interval in zip(places, one.intervals, strict=False):
            if interval is not None:
                elements += _whisker(middle - step * 0.4 + (place + 0.5) * width, interval, up)
    return Drawing(axes.WIDTH, area.height, elements)


def _reached(plot: Bars) -> Iterator[float]:
    """All that the axis upwards must hold."""
    for one in plot.series:
        yield from (value for value in one.values if value is not None)
        yield from (edge for interval in one.intervals if interval is not None for edge in interval)


def _whisker(x: float, interval: tuple[float, float], up: Scale) -> list[str]:
    """A line from one end of an interval to the other, with a stroke at both."""
    low, high = (up(edge) for edge in interval)
    strokes = [shapes.line((x - 4, y), (x + 4, y), "whisker") for y in (low, high)]
    return [shapes.line((x, low), (x, high), "whisker"), *strokes]


def signed(value: float) -> str:
    """`+0.25`, `-1.2`, `0`."""
    return f"{value:+.3g}" if value else "0"


def _scale(values: Sequence[float], area: axes.Area) -> Scale:
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.06 * (high - low) or 1.0
    return Scale(low - room * (low < 0), high + room * (high > 0), area.bottom, area.top)


def _bar(left: float, width: float, value: float, up: Scale, place: int, tooltip: str) -> str:
    top, bottom = sorted((up(value), up(0)))
    gap = min(1.0, width * 0.1)
    look = f"bar {axes.series_look(place)}"
    return shapes.rectangle((left + gap / 2, top), width - gap, max(bottom - top, 0.5), look, tooltip)


def _swatch(place: int, x: float, y: float) -> str:
    return shapes.rectangle((x + 8, y - 5), 14, 10, f"bar {axes.series_look(place)}")
