"""Bars over groups: changes by bucket of frequency, shares of a histogram."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.drawing import axes, shapes
from stages.charts.drawing.figure import Figure
from stages.charts.drawing.scale import Scale


@dataclass(frozen=True)
class Bars:
    """One bar a group; None where there is nothing to show."""

    label: str
    values: Sequence[float | None]


def bar_chart(
    name: str,
    title: str,
    caption: str,
    groups: Sequence[str],
    series: Sequence[Bars],
    names: tuple[str, str],
    told: Callable[[float], str],
    table: tuple[Sequence[str], Sequence[Sequence[Any]]],
) -> Figure | None:
    """Groups of bars from zero, up or down; None without a value.

    Args:
        groups: labels under the bars.
        names: of the axis across and of the axis upwards.
        told: a value in words.
        table: columns and rows of its numbers.
    """
    values = [value for one in series for value in one.values if value is not None]
    if not values:
        return None
    labels = [one.label for one in series] if len(series) > 1 else []
    area = axes.plot_area(labels)
    up = _scale(values, area)
    step = (area.right - area.left) / len(groups)
    places = [(area.left + (place + 0.5) * step, label) for place, label in enumerate(groups)]
    elements = [
        *axes.upward_axis(area, up, names[1], told),
        *axes.across_axis(area, places, names[0]),
        *axes.legend(labels, lambda place, x, y: [_swatch(place, x, y)]),
        shapes.line((area.left, up(0)), (area.right, up(0)), "base"),
    ]
    width = step * 0.8 / len(series)
    for place, one in enumerate(series):
        for (middle, group), value in zip(places, one.values, strict=True):
            if value is not None:
                left = middle - step * 0.4 + place * width
                elements.append(_bar(left, width, value, up, place, f"{one.label}, {group}: {told(value)}"))
    return Figure(name, title, caption, axes.WIDTH, area.height, elements, *table)


def _scale(values: Sequence[float], area: axes.Area) -> Scale:
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.06 * (high - low) or 1.0
    return Scale(low - room * (low < 0), high + room * (high > 0), area.bottom, area.top)


def _bar(left: float, width: float, value: float, up: Scale, place: int, told: str) -> str:
    top, bottom = sorted((up(value), up(0)))
    gap = min(1.0, width * 0.1)
    look = f"bar {axes.series_look(place)}"
    return shapes.rectangle((left + gap / 2, top), width - gap, max(bottom - top, 0.5), look, told)


def _swatch(place: int, x: float, y: float) -> str:
    return shapes.rectangle((x + 8, y - 5), 14, 10, f"bar {axes.series_look(place)}")
