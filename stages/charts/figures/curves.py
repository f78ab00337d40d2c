"""Perplexity against one number: how much memory is read, or how much it weighs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stages.charts.figures.canvas import Add, spell_out, write_figure
from stages.charts.tuning_result import TuningResult, measure, symbol
from stages.numbers import number, spread_out

LOOKS = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#56b4e9", "v"), ("#e69f00", "P"))
"""Colour and marker of each line; the colours that Okabe and Ito chose for the colour-blind."""


@dataclass(frozen=True)
class Line:
    """Perplexities `y` at `x`; not finite where it diverged."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def draw_curves(report: Mapping[str, Any], over: str, add: Add) -> list[str]:
    """Perplexity of the scored split against cache size or neighbours, a line a row of two points or more."""
    curves = [curve for curve in report["curves"] if curve["over"] == over and len(curve["points"]) > 1]
    if not curves:
        return []
    lines = [
        Line(curve["row"], [p[over] for p in curve["points"]], [_value(p["perplexity"]) for p in curve["points"]])
        for curve in curves
    ]
    figure = Figure()
    axes = figure.subplots()
    plain = report["rows"][0]
    _plot(axes, lines, _value(plain["perplexity"]), drawn=any(line.label == plain["row"] for line in lines))
    axes.set_title(f"{measure(report)} on {report['split']}")
    axes.set_xlabel(symbol(over))
    sizes = sorted({x for line in lines for x in line.x})
    axes.set_xscale("symlog" if sizes[0] == 0 else "log")
    axes.set_xticks(sizes, [number(size) for size in sizes], rotation=45 if len(sizes) > 8 else 0)
    axes.minorticks_off()
    columns = list(dict.fromkeys(name for curve in curves for point in curve["points"] for name in point))
    rows = [(c["row"], *(point.get(name) for name in columns)) for c in curves for point in c["points"]]
    return write_figure(figure, f"perplexity-by-{over}", ("row", *columns), rows, add)


def draw_weights(tuning: TuningResult, add: Add) -> list[str]:
    """Perplexity of the tuning split against the weight of the memory, at the best scale; two weights or more."""
    weights, perplexity = tuning.weight.values, tuning.perplexity[tuning.best[0]].tolist()
    if len(weights) < 2:
        return []
    figure = Figure()
    axes = figure.subplots()
    label = f"{tuning.scale.symbol} {tuning.scale.labels[tuning.best[0]]}"
    _plot(axes, [Line(label, [float(w) for w in weights if w is not None], perplexity)], tuning.plain)
    axes.set_title(tuning.title)
    axes.set_xlabel(tuning.weight.symbol)
    rows = zip(weights, perplexity, strict=True)
    name = tuning.weight.name
    return write_figure(figure, f"perplexity-by-{name}", (name, "perplexity"), rows, add)


def _plot(axes: Axes, lines: Sequence[Line], plain: float, *, drawn: bool = False) -> None:
    """Lines, and the plain model as a dashed one unless it is among them; what is far above is left out at the top."""
    for line, (colour, marker) in zip(lines, cycle(LOOKS), strict=False):
        height = np.minimum(np.ma.masked_invalid(line.y), 10 * plain)
        axes.plot(line.x, height, color=colour, marker=marker, markersize=4.5, label=line.label)
    if np.isfinite(plain) and not drawn:
        axes.axhline(plain, color="black", linestyle="--", linewidth=1, label="plain")
    _scale_up(axes, np.array([plain, *(y for line in lines for y in line.y)]))
    axes.set_ylabel("perplexity")
    axes.grid(color="#e0e0e0", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend()


def _scale_up(axes: Axes, perplexities: np.ndarray) -> None:
    """The upward axis ends at twice the plain model's perplexity, the first; logarithmic where they reach far."""
    shown = perplexities[perplexities <= 2 * perplexities[0]]
    wide = spread_out(shown[np.isfinite(shown)])
    axes.set_yscale("log" if wide else "linear")
    spell_out(axes.yaxis, wide)
    lowest, highest = axes.get_ylim()
    axes.set_ylim(lowest, min(highest, 2 * perplexities[0]))


def _value(perplexity: float | None) -> float:
    """A perplexity of a report, where None is not a finite number."""
    return np.inf if perplexity is None else perplexity
