"""The colours of a heat map's cells, and the key that says what they mean."""

import math
from collections.abc import Sequence

from stages.charts.data import HeatMap, Share, SmallerIsBetter
from stages.charts.drawing import axes, shapes
from stages.charts.drawing.palette import SHADES, STEPS
from stages.numbers import number

Values = Sequence[Sequence[float]]
KEY_HEIGHT = 46.0
SWATCH = 19.0
A_ROUNDING = 1 + 1e-6
"""Above the limit: a cell that equals the plain model is not worse than it."""


def best(values: Values) -> tuple[int, int]:
    """The place of the smallest, the first of equals."""
    places = [(across, up) for across, column in enumerate(values) for up in range(len(column))]
    return min(places, key=lambda place: values[place[0]][place[1]])


def look(value: float, plot: HeatMap) -> str:
    """The class of a cell; where smaller is better, levels are finer near the best."""
    if isinstance(plot.colours, Share):
        return f"g{round(min(max(value, 0.0), 1.0) * (STEPS - 1))}"
    limit = plot.colours.limit * A_ROUNDING
    if not math.isfinite(value):
        return "diverged"
    if value > limit:
        return "worse"
    smallest = min(min(column) for column in plot.values)
    reach = math.log(limit / smallest)
    share = math.sqrt(math.log(value / smallest) / reach)
    return f"h{SHADES - 1 - min(int(share * SHADES), SHADES - 1)}"


def colour_key(plot: HeatMap, left: float, top: float) -> list[str]:
    """Draw the colour scale of a heat map, `KEY_HEIGHT` high."""
    if isinstance(plot.colours, Share):
        return _shares_key(plot.colours, left, top)
    return [*_levels_key(plot, plot.colours, left, top), *_beyond_key(plot, plot.colours, left, top)]


def _swatches(looks: Sequence[str], left: float, top: float) -> list[str]:
    return [
        shapes.rectangle((left + place * SWATCH, top), SWATCH, 11, f"cell {look}") for place, look in enumerate(looks)
    ]


def _shares_key(colours: Share, left: float, top: float) -> list[str]:
    """The colours from 0 to 1, and what these stand for."""
    return [
        *_swatches([f"g{step}" for step in range(STEPS)], left, top),
        shapes.text(left, top + 26, f"0: {colours.zero}", "number"),
        shapes.text(left + STEPS * SWATCH, top + 26, f"1: {colours.one}", "number", "end"),
    ]


def _levels_key(plot: HeatMap, colours: SmallerIsBetter, left: float, top: float) -> list[str]:
    """The colours from best to the limit, and where the best is."""
    x, y = best(plot.values)
    end = left + SHADES * SWATCH
    place = f"at {plot.across.name} {plot.across.labels[x]}, {plot.up.name} {plot.up.labels[y]}"
    return [
        *_swatches([f"h{SHADES - 1 - level}" for level in range(SHADES)], left, top),
        shapes.text(left, top + 26, f"best {number(plot.values[x][y])}", "number"),
        shapes.text(end, top + 26, f"{number(colours.limit)} {colours.label}".strip(), "number", "end"),
        shapes.mark((end + 33, top + 22), shapes.STAR, "star"),
        shapes.text(end + 46, top + 26, place, "number"),
    ]


def _beyond_key(plot: HeatMap, colours: SmallerIsBetter, left: float, top: float) -> list[str]:
    """The looks of cells beyond the limit, if there are any."""
    words = {"worse": f"worse than {colours.label}", "diverged": "diverged"}
    found = {look(value, plot) for column in plot.values for value in column}
    x = left + SHADES * SWATCH + 24
    drawn = []
    for name in (name for name in words if name in found):
        drawn.append(shapes.rectangle((x, top), SWATCH, 11, f"cell {name}"))
        drawn.append(shapes.text(x + SWATCH + 6, top + 10, words[name], "number"))
        x += SWATCH + 24 + axes.LETTER * len(words[name])
    return drawn
