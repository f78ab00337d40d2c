"""Charts of a memory's tuning: perplexity of the tuning split over its two settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.charts.data import Chart, HeatMap, Level, Line, Lines, Side, SmallerIsBetter, Table
from stages.charts.tuning_result import Axis, TuningResult, tuning_result


def tuning_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`heat-map` where both settings had a choice; `perplexity-by-lambda`, `-alpha` at the best scale.

    Where the weight had no choice, the same by its scale: `perplexity-by-theta`, `-temperature`.
    """
    tuning = tuning_result(metrics)
    if tuning is None:
        return []
    scales, weights = tuning.perplexity.shape
    charts = [_heat_map(tuning)] if min(scales, weights) > 1 else []
    if weights > 1:
        best = tuning.scale, tuning.best[0]
        return [*charts, _line(tuning, tuning.weight, tuning.perplexity[tuning.best[0]].tolist(), best)]
    if scales > 1:
        return [_line(tuning, tuning.scale, tuning.perplexity[:, 0].tolist(), (tuning.weight, 0))]
    return charts


def _heat_map(tuning: TuningResult) -> Chart:
    return Chart(
        "heat-map",
        tuning.what,
        f"{tuning.outcome}. Darker, in the dark brighter, is better; colours are finer near the best.",
        HeatMap(
            tuning.perplexity.tolist(),
            Side(tuning.scale.symbol, tuning.scale.labels),
            Side(tuning.weight.symbol, tuning.weight.labels),
            SmallerIsBetter(tuning.limit, tuning.first if tuning.helps else ""),
        ),
        Table(
            (tuning.scale.name, tuning.weight.name, "perplexity"),
            [
                (scale, weight, value)
                for scale, line in zip(tuning.scale.values, tuning.perplexity.tolist(), strict=True)
                for weight, value in zip(tuning.weight.values, line, strict=True)
            ],
        ),
    )


def _line(tuning: TuningResult, axis: Axis, perplexities: Sequence[float], fixed: tuple[Axis, int]) -> Chart:
    """Perplexities along one axis, the other at one of its places; an infinite temperature has none on the axis."""
    other, place = fixed
    points = [(x, y) for x, y in zip(axis.values, perplexities, strict=True) if x is not None]
    return Chart(
        f"perplexity-by-{axis.name}",
        f"{tuning.what}, by {axis.symbol}",
        f"{tuning.outcome}.",
        Lines(
            [Line(f"{other.symbol} {other.labels[place]}", points)],
            axis.symbol,
            "perplexity",
            ticks=None if axis is tuning.weight else [x for x, _ in points],
            level=Level(tuning.first, tuning.plain) if np.isfinite(tuning.plain) else None,
        ),
        Table((axis.name, "perplexity"), list(zip(axis.values, perplexities, strict=True))),
    )
