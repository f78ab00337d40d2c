"""Drawing of groups of bars, and of histograms."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from stages.charts.data import Bars, Histogram, Series
from stages.charts.palette import LIGHT, SERIES
from stages.charts.sheet import DASHES, LETTER, add_legend, new_axes, round_ticks
from stages.charts.titles import WIDTH
from stages.numbers import number, percent

GROUP = 0.82
"""Share of a group's width that its bars take."""
SMALL = 9.5
"""Size of letters of values at bars."""


def bars_axes(plot: Bars) -> Axes:
    """One bar for each series in each group, with a whisker for its interval.

    Values are written at the bars and names below them if there is room; otherwise names are
    turned.
    """
    axes = new_axes()
    bar = GROUP / len(plot.series)
    has_room = _has_room_for_values(plot)
    for place, series in enumerate(plot.series):
        middle = (place - (len(plot.series) - 1) / 2) * bar
        colours = [
            LIGHT["strong-rule"] if group in plot.muted else SERIES[place % len(SERIES)]
            for group in plot.groups
        ]
        _draw_series(axes, series, colours, middle, bar)
        if has_room:
            _write_values(axes, series, middle, plot)

    axes.axhline(0, color=LIGHT["strong-rule"], linewidth=1)
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0, y=0.1 if has_room else 0.05)
    axes.set_xlim(-0.5, len(plot.groups) - 0.5)
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    _write_groups(axes, plot)
    _write_numbers(axes, plot.signed)
    if len(plot.series) > 1:
        add_legend(
            axes,
            [
                Patch(color=SERIES[place % len(SERIES)], label=series.label)
                for place, series in enumerate(plot.series)
            ],
        )
    return axes


def _draw_series(
    axes: Axes, series: Series, colours: Sequence[str], middle: float, width: float
) -> None:
    """Draw the bars of one series, each in its group's colour, at `middle` in widths of a group."""
    xs = []
    heights = []
    bar_colours = []
    for group, value in enumerate(series.values):
        if value is not None:
            xs.append(group + middle)
            heights.append(value)
            bar_colours.append(colours[group])
    axes.bar(xs, heights, width, color=bar_colours)

    # both ends of each interval, one after the other
    ends: list[float] = []
    xs_of_ends: list[float] = []
    for group, interval in enumerate(series.intervals):
        if interval is not None:
            ends += interval
            xs_of_ends += [group + middle] * 2
    if ends:
        ink = LIGHT["ink"]
        axes.vlines(xs_of_ends[::2], ends[::2], ends[1::2], color=ink, linewidth=1.4, zorder=2)
        axes.plot(xs_of_ends, ends, color=ink, linestyle="none", marker="_", markersize=8, zorder=2)


def _has_room_for_values(plot: Bars) -> bool:
    """Whether the values of neighbouring bars would not touch."""
    values = [value for series in plot.series for value in series.values if value is not None]
    longest = max(len(_text_at_bar(value, plot)) for value in values)
    width = GROUP * WIDTH / (len(plot.groups) * len(plot.series))
    return LETTER * SMALL / 11 * (longest + 0.5) <= width


def _write_values(axes: Axes, series: Series, middle: float, plot: Bars) -> None:
    """Write each value beyond its bar and whisker."""
    for group, value in enumerate(series.values):
        if value is None:
            continue
        interval = series.intervals[group] if series.intervals else None
        low, high = interval or (value, value)
        upward = value >= 0
        axes.annotate(
            _text_at_bar(value, plot),
            (group + middle, max(value, high, 0) if upward else min(value, low, 0)),
            (0, 4 if upward else -4),
            textcoords="offset points",
            ha="center",
            va="bottom" if upward else "top",
            fontsize=SMALL,
            color=LIGHT["ink"],
        )


def _text_at_bar(value: float, plot: Bars) -> str:
    if plot.decimals is None:
        return value_text(value, plot.signed)
    return f"{value:,.{plot.decimals}f}"


def value_text(value: float, signed: bool) -> str:
    """A value at its bar or on the axis: `+0.25`, `-1.2`, `0`; without a sign `1,234`."""
    if not signed:
        return number(value)
    return f"{value:+.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def _write_groups(axes: Axes, plot: Bars) -> None:
    """Write the names of groups, turned if they would touch."""
    num_groups = len(plot.groups)
    places = list(range(num_groups))

    # half of each of two neighbouring names lies between their middles
    letters = [len(group) + len(next_group) for group, next_group in pairwise(plot.groups)]
    max_width = LETTER * (max(letters, default=0) / 2 + 1)
    if max_width > WIDTH / num_groups:
        axes.set_xticks(places, plot.groups, rotation=35, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(places, plot.groups)


def _write_numbers(axes: Axes, signed: bool) -> None:
    """Numbers of the vertical axis."""
    ticks = round_ticks(*axes.get_ylim())
    axes.set_yticks(ticks, [value_text(tick, signed) for tick in ticks])


def histogram_axes(plot: Histogram) -> Axes:
    """Steps from edge to edge, filled for the first series, and the mean as a vertical line."""
    axes = new_axes()
    edges = list(plot.edges)
    handles = []
    for place, series in enumerate(plot.series):
        colour = SERIES[place % len(SERIES)]
        shares = [share or 0 for share in series.values]
        if place == 0:
            axes.stairs(shares, edges, fill=True, color=colour, alpha=0.3)
        axes.stairs(shares, edges, color=colour, linewidth=2)
        handles.append(Line2D([], [], color=colour, label=series.label))
    mean = axes.axvline(plot.mean, color=LIGHT["ink"], linestyle=DASHES, linewidth=1.4)
    mean.set_label(f"mean {number(plot.mean)}")
    handles.append(mean)

    axes.set_xlabel(plot.across)
    axes.set_ylabel("share")
    axes.grid(axis="y")
    first = edges[0]
    last = edges[-1]
    axes.set_xlim(first, last)
    axes.set_ylim(bottom=0)

    across = round_ticks(first, last, 7)
    axes.set_xticks(across, [number(tick) for tick in across])
    up = round_ticks(*axes.get_ylim())
    axes.set_yticks(up, [percent(tick) for tick in up])
    add_legend(axes, handles)
    return axes
