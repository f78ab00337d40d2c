"""Outlines of shares between edges: how often a value is how large."""

from collections.abc import Sequence
from itertools import pairwise

from stages.charts.data import Histogram, Series
from stages.charts.drawing import axes, shapes
from stages.charts.drawing.figure import Drawing
from stages.charts.drawing.scale import Scale, scale_over
from stages.numbers import number, percent


def draw_histogram(plot: Histogram) -> Drawing:
    """Steps from edge to edge, those of the first series filled, and the mean as a line upwards."""
    labels = [*(one.label for one in plot.series), f"mean {number(plot.mean)}"]
    area = axes.plot_area(labels)
    across = scale_over(plot.edges, area.left, area.right, rounded=False)
    highest = max(value for one in plot.series for value in one.values if value is not None)
    up = Scale(0, 1.06 * highest or 1.0, area.bottom, area.top)
    elements = [*axes.upward_axis(area, up, "share", percent)]
    for place, one in enumerate(plot.series):
        elements += _outline(plot.edges, one, place, across, up)
    mean = across(plot.mean)
    return Drawing(
        axes.WIDTH,
        area.height,
        [
            *elements,
            shapes.line((mean, area.bottom), (mean, area.top), "level"),
            *axes.across_axis(area, [(across(x), number(x)) for x in across.ticks(7)], plot.across),
            *axes.legend(labels, lambda place, x, y: _sign(len(plot.series), place, x, y)),
        ],
    )


def _outline(edges: Sequence[float], one: Series, place: int, across: Scale, up: Scale) -> list[str]:
    steps = [
        (across(edge), up(value or 0)) for ends, value in zip(pairwise(edges), one.values, strict=True) for edge in ends
    ]
    points = [(across(edges[0]), up(0)), *steps, (across(edges[-1]), up(0))]
    look = axes.series_look(place)
    filled = [shapes.polyline(points, f"under {look}")] if place == 0 else []
    return [*filled, shapes.polyline(points, f"line {look}")]


def _sign(series: int, place: int, x: float, y: float) -> list[str]:
    look = "level" if place == series else f"line {axes.series_look(place)}"
    return [shapes.line((x, y), (x + 22, y), look)]
