"""The frame of a chart: title-free, with grid lines, numbers and the names of its axes; legends above it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stages.charts.drawing import shapes
from stages.charts.drawing.scale import Scale

WIDTH = 540.0
PLOT_HEIGHT = 230.0
LEFT, RIGHT, BELOW = 66.0, 14.0, 46.0
LEGEND_LINE = 18.0
LETTER = 6.5
"""Width of a letter of a label, about."""
SERIES = 8
"""Looks that the style has for lines and bars: classes s0 … s7."""

Written = Callable[[float], str]


@dataclass(frozen=True)
class Area:
    """The rectangle in which data is drawn."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """Height of the whole drawing."""
        return self.bottom + BELOW


def plot_area(legend: Sequence[str]) -> Area:
    """Where data goes under a legend of these labels."""
    top = 10 + LEGEND_LINE * len(_legend_lines(legend))
    return Area(LEFT, top, WIDTH - RIGHT, top + PLOT_HEIGHT)


def series_look(number: int) -> str:
    """The class of a series."""
    return f"s{number % SERIES}"


def marker_of(number: int) -> str:
    """The sign of a series."""
    return shapes.MARKERS[number % len(shapes.MARKERS)]


def legend(labels: Sequence[str], signs: Callable[[int, float, float], list[str]]) -> list[str]:
    """Labels in lines from the left, each behind its sign.

    Args:
        labels: of the series.
        signs: draws the sign of a series from a point, 22 units wide.
    """
    drawn: list[str] = []
    number = 0
    for row, line in enumerate(_legend_lines(labels)):
        x, y = LEFT, 14 + row * LEGEND_LINE
        for label in line:
            drawn += signs(number, x, y - 4)
            drawn.append(shapes.text(x + 28, y, fitted(label), "label"))
            x += _legend_width(label)
            number += 1
    return drawn


def fitted(label: str) -> str:
    """A label that is longer than a line without its middle: beginnings are often alike, ends tell series apart."""
    most = int((WIDTH - LEFT - 28) / LETTER)
    if len(label) <= most:
        return label
    head = most // 3
    return f"{label[:head]}…{label[len(label) - (most - head - 1) :]}"


def _legend_width(label: str) -> float:
    return 46 + LETTER * len(label)


def _legend_lines(labels: Sequence[str]) -> list[list[str]]:
    lines: list[list[str]] = []
    used = WIDTH
    for label in labels:
        if used + _legend_width(label) > WIDTH - LEFT:
            lines.append([])
            used = 0
        lines[-1].append(label)
        used += _legend_width(label)
    return lines


def upward_axis(area: Area, scale: Scale, name: str, written: Written, most: int = 6) -> list[str]:
    """Grid lines across the area, their numbers to the left, the axis's name beside them."""
    drawn = []
    for tick in scale.ticks(most):
        y = scale(tick)
        drawn.append(shapes.line((area.left, y), (area.right, y), "grid"))
        drawn.append(shapes.text(area.left - 6, y + 4, written(tick), "number", "end"))
    middle = (area.top + area.bottom) / 2
    return [*drawn, shapes.text(12, middle, name, "axis", "middle", turned=True)]


def across_axis(area: Area, places: Sequence[tuple[float, str]], name: str) -> list[str]:
    """Numbers under the area at the given places, as many as fit, and the axis's name."""
    drawn = [shapes.line((area.left, area.bottom), (area.right, area.bottom), "base")]
    end = -1.0
    for x, words in places:
        half = LETTER * len(words) / 2
        if x - half > end:
            drawn.append(shapes.line((x, area.bottom), (x, area.bottom + 4), "base"))
            drawn.append(shapes.text(x, area.bottom + 17, words, "number", "middle"))
            end = x + half + 5
    middle = (area.left + area.right) / 2
    return [*drawn, shapes.text(middle, area.bottom + 38, name, "axis", "middle")]
