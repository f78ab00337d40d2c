"""Perplexity over two hyperparameters."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from stages.charts.figures.canvas import Add, spell_out, write_figure
from stages.charts.tuning_result import TuningResult
from stages.numbers import spread_out

WORSE = "#d0d0d0"
"""Colour of cells above the scale."""
A_ROUNDING = 1 + 1e-6
"""Above the limit: a cell that equals the plain model is not worse than it."""


def draw_heat_map(tuning: TuningResult, add: Add) -> list[str]:
    """Perplexity over scale (across) and weight (up); nothing unless there are two of each.

    Colours reach up to the plain model's perplexity, so that a point that diverged does not take them all.
    """
    if min(tuning.perplexity.shape) < 2:
        return []
    figure = Figure(figsize=_size(tuning))
    axes = figure.subplots()
    limit = tuning.limit * A_ROUNDING
    cells = axes.pcolormesh(
        np.minimum(tuning.perplexity, 2 * limit).T,
        cmap=colormaps["viridis"].with_extremes(over=WORSE),
        norm=_colours(tuning.perplexity.min(), limit),
        edgecolors="face",
        linewidth=0.3,
    )
    extend = "max" if (tuning.perplexity > limit).any() else "neither"
    bar = figure.colorbar(cells, ax=axes, label="perplexity", extend=extend)
    spell_out(bar.ax.yaxis, spread_out(cells.get_clim()))
    _mark(axes, tuning, limit)
    _name_axes(axes, tuning)
    rows = [
        (scale, weight, value)
        for scale, line in zip(tuning.scale.values, tuning.perplexity.tolist(), strict=True)
        for weight, value in zip(tuning.weight.values, line, strict=True)
    ]
    return write_figure(figure, "heat-map", (tuning.scale.name, tuning.weight.name, "perplexity"), rows, add)


def _size(tuning: TuningResult) -> tuple[float, float]:
    """Inches: room for the labels of every value, within a page."""
    across, up = tuning.perplexity.shape
    return min(10.0, max(5.6, 2.4 + 0.36 * across)), min(8.0, max(3.8, 1.9 + 0.22 * up))


def _colours(lowest: float, highest: float) -> Normalize:
    return (LogNorm if spread_out((lowest, highest)) else Normalize)(lowest, highest)


def _mark(axes: Axes, tuning: TuningResult, limit: float) -> None:
    """A sign in the best cell, in those worse than the plain model and in those that diverged."""
    finite = np.isfinite(tuning.perplexity)
    best = np.zeros_like(finite)
    best[tuning.best] = True
    for where, marker, size, colour, edge, label in (
        (finite & (tuning.perplexity > limit), "+", 5, "#808080", "#808080", "worse than plain"),
        (~finite, "x", 5, "black", "black", "diverged"),
        (best, "*", 13, "white", "black", "best"),
    ):
        x, y = np.argwhere(where).T + 0.5
        if where.any():
            axes.plot(x, y, marker, color=colour, markersize=size, markeredgecolor=edge, label=label)
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=3, fontsize=8)


def _name_axes(axes: Axes, tuning: TuningResult) -> None:
    axes.set_title(tuning.title)
    axes.set_xticks(np.arange(len(tuning.scale.values)) + 0.5, tuning.scale.labels, rotation=45)
    axes.set_yticks(np.arange(len(tuning.weight.values)) + 0.5, tuning.weight.labels)
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel(tuning.scale.symbol)
    axes.set_ylabel(tuning.weight.symbol)
