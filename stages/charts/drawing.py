"""Drawing of a chart with matplotlib, as an SVG element and as a PNG image.

Only what draws imports this module, and matplotlib with it.
"""

from functools import cached_property

from matplotlib.axes import Axes

from stages.charts.bars import bars_axes, histogram_axes
from stages.charts.cells import heat_map_axes
from stages.charts.data import Bars, Chart, Graph, HeatMap, Histogram, Lines, Points
from stages.charts.graph import graph_axes
from stages.charts.lines import lines_axes
from stages.charts.points import points_axes
from stages.charts.sheet import drawing_style, drawn_box, png_of, svg_of

PIXELS = 2
"""Pixels of an image for each pixel of the SVG."""


class Drawing:
    """A drawn chart; the same chart gives the same bytes on every machine."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        with drawing_style(chart.name):
            self._axes = _axes(chart)
            self._box = drawn_box(self._axes)
        self.width = round(self._box.width)
        self.height = round(self._box.height)

    @cached_property
    def element(self) -> str:
        """The drawing without its title, as an SVG element of `width` and `height` in points."""
        with drawing_style(self.chart.name):
            return svg_of(self._axes, self._box, self.chart.name)

    @property
    def png(self) -> bytes:
        """The drawing under its title as a PNG image."""
        with drawing_style(self.chart.name):
            return png_of(self._axes, self._box, self.chart.title, PIXELS)


def _axes(chart: Chart) -> Axes:
    """The axes of a chart on a sheet of their own."""
    match chart.plot:
        case Lines():
            return lines_axes(chart.plot)
        case Points():
            return points_axes(chart.plot)
        case Bars():
            return bars_axes(chart.plot)
        case Histogram():
            return histogram_axes(chart.plot)
        case HeatMap():
            return heat_map_axes(chart.plot)
        case Graph():
            return graph_axes(chart.plot)
