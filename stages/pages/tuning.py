"""What the tuning of a memory tried: perplexity of the tuning split over its settings."""

from collections.abc import Sequence

import numpy as np

from stages.charts.drawing.figure import Figure, slug
from stages.charts.drawing.heat_map import Entries, Side, heat_map
from stages.charts.drawing.line_chart import Axes, Line, line_chart
from stages.charts.tuning_result import TuningResult, tuning_result
from stages.pages.source import Source


def tuning_figures(sources: Sequence[Source]) -> list[Figure]:
    """Of each report with a grid a heat map, or a line where only one setting had a choice."""
    figures = []
    for source in sources:
        tuning = tuning_result(source.metrics)
        if tuning is not None and max(tuning.perplexity.shape) > 1:
            both = min(tuning.perplexity.shape) > 1
            figures.append(_heat_map(source, tuning) if both else _line(source, tuning))
    return [figure for figure in figures if figure is not None]


def _heat_map(source: Source, tuning: TuningResult) -> Figure:
    return heat_map(
        f"tuning-{slug(source.member.label)}",
        _title(source, tuning),
        _caption(tuning) + " Darker, in the dark brighter, is better; colours are finer near the best.",
        Side(tuning.scale.symbol, tuning.scale.labels),
        Side(tuning.weight.symbol, tuning.weight.labels),
        Entries(tuning.perplexity.tolist(), tuning.limit, "plain" if tuning.helps else ""),
        _table(tuning),
    )


def _line(source: Source, tuning: TuningResult) -> Figure | None:
    axis = tuning.scale if len(tuning.scale.values) > 1 else tuning.weight
    points = [
        (float(x), float(y)) for x, y in zip(axis.values, tuning.perplexity.ravel(), strict=True) if x is not None
    ]
    return line_chart(
        f"tuning-{slug(source.member.label)}",
        _title(source, tuning),
        _caption(tuning),
        [Line(source.metrics["grid"]["row"], points)],
        Axes(
            axis.symbol,
            "perplexity",
            x_values=[x for x, _ in points],
            level=tuning.plain if np.isfinite(tuning.plain) else None,
            level_label="plain",
        ),
        _table(tuning),
    )


def _title(source: Source, tuning: TuningResult) -> str:
    about = "" if source.alone else f"{source.label}: "
    return f"{about}{tuning.what}"


def _caption(tuning: TuningResult) -> str:
    return tuning.title.partition("\n")[2].capitalize() + "."


def _table(tuning: TuningResult) -> tuple[list[str], list[list[float | None]]]:
    rows = [
        [scale, weight, value if np.isfinite(value) else None]
        for scale, line in zip(tuning.scale.values, tuning.perplexity.tolist(), strict=True)
        for weight, value in zip(tuning.weight.values, line, strict=True)
    ]
    return [tuning.scale.name, tuning.weight.name, "perplexity"], rows
