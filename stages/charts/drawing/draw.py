"""Draws charts: lines, bars, histograms, heat maps and graphs, whatever they are of."""

from collections.abc import Iterable

from stages.charts.data import Bars, Chart, Graph, HeatMap, Histogram, Lines
from stages.charts.drawing.bars import draw_bars
from stages.charts.drawing.figure import Drawing, Figure
from stages.charts.drawing.graph import draw_graph
from stages.charts.drawing.heat_map import draw_heat_map
from stages.charts.drawing.histogram import draw_histogram
from stages.charts.drawing.lines import draw_lines


def draw(chart: Chart) -> Figure:
    """The figure of a chart that has something to see."""
    return Figure(chart, _drawing(chart))


def figures(charts: Iterable[Chart]) -> list[Figure]:
    """Those of the charts that have something to see."""
    return [draw(chart) for chart in charts if not chart.plot.empty]


def _drawing(chart: Chart) -> Drawing:
    match chart.plot:
        case Lines():
            return draw_lines(chart.plot)
        case Bars():
            return draw_bars(chart.plot)
        case Histogram():
            return draw_histogram(chart.plot)
        case HeatMap():
            return draw_heat_map(chart.plot)
        case Graph():
            return draw_graph(chart.plot)
