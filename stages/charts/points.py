"""Drawing of named points over a number."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from stages.charts.data import Points
from stages.charts.lines import scale_across, scale_up
from stages.charts.palette import LIGHT, SERIES
from stages.charts.sheet import LETTER, fitted, new_axes, size_of
from stages.numbers import spread_out

HEIGHT = 330.0
"""Height of the area between the axes, which has room for a line of text at each point."""
DOT = 7
"""Diameter of a point."""
LINE = 13.0
"""Height of a label."""
GAP = 7.0
"""Distance between a point and its label."""


class Label(NamedTuple):
    """Place of a label, in pixels from the bottom left of the axes; its end is `left + width`."""

    text: str
    left: float
    middle: float
    width: float

    def touches(self, other: "Label") -> bool:
        """Whether two labels lie on each other."""
        return (
            abs(self.middle - other.middle) < LINE
            and self.left < other.left + other.width
            and other.left < self.left + self.width
        )


def points_axes(plot: Points) -> Axes:
    """Points, each with its name beside it."""
    axes = new_axes(height=HEIGHT)
    names, xs, ys = zip(*plot.known, strict=True)
    axes.plot(xs, ys, linestyle="none", marker="o", markersize=DOT, color=SERIES[0])
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    axes.grid(axis="y")
    scale_across(axes, _powers(xs), xs)
    scale_up(axes, ys, percent_ticks=plot.percent, even=True)

    places = axes.transData.transform(list(zip(xs, ys, strict=True)))
    corner = axes.get_window_extent()
    in_axes = [(x - corner.x0, y - corner.y0) for x, y in places.tolist()]
    for label, (x, y) in zip(placed_labels(names, in_axes, size_of(axes)[0]), in_axes, strict=True):
        _draw_label(axes, label, x, y)
    return axes


def _draw_label(axes: Axes, label: Label, x: float, y: float) -> None:
    """Write a label; a thin line leads to a point at (x, y), in pixels, that is not beside it."""
    width, height = size_of(axes)
    axes.text(
        label.left / width,
        label.middle / height,
        label.text,
        transform=axes.transAxes,
        va="center",
        color=LIGHT["ink"],
    )
    if abs(label.middle - y) >= LINE / 2:
        is_right = label.left > x
        end = label.left - 1 if is_right else label.left + label.width + 1
        axes.plot(
            [x / width, end / width],
            [y / height, label.middle / height],
            transform=axes.transAxes,
            color=LIGHT["strong-rule"],
            linewidth=0.8,
        )


def placed_labels(
    names: Sequence[str], points: Sequence[tuple[float, float]], width: float
) -> list[Label]:
    """Labels beside their points, none upon another or upon a point, in the order of the points.

    A label stands to the right, where the axes have room. One that would touch a point or an
    earlier label moves up or down, by the shortest way.

    Args:
        points: x and y in pixels.
        width: of the axes, in pixels.
    """
    labels: dict[int, Label] = {}
    taken = [Label("", x - DOT / 2, y, DOT) for x, y in points]
    from_the_top = sorted(range(len(points)), key=lambda number: -points[number][1])
    for number in from_the_top:
        x, y = points[number]
        text = fitted(names[number], width / 2)
        length = LETTER * len(text)
        fits_right = x + GAP + length <= width
        left = x + GAP if fits_right else x - GAP - length
        # Each of what is taken keeps a label from four places at the most.
        moves = [step * sign * LINE / 2 for step in range(2 * len(taken) + 1) for sign in (-1, 1)]
        tried = (Label(text, left, y + move, length) for move in moves)
        placed = next(label for label in tried if not any(map(label.touches, taken)))
        labels[number] = placed
        taken.append(placed)
    return [labels[number] for number in range(len(points))]


def _powers(xs: Sequence[float]) -> list[float] | None:
    """Ticks at 1, 2 and 5 times powers of ten, if numbers span a wide range; else None."""
    positive = [x for x in xs if x > 0]
    if not spread_out(positive):
        return None
    powers = range(math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive))))
    ticks = [head * 10.0**power for power in powers for head in (1, 2, 5)]
    return [0.0] * (min(xs) <= 0) + [tick for tick in ticks if min(positive) <= tick <= max(xs)]
