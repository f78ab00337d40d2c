"""From what the tuning split left to the settings that are used, and how they are told."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.evaluation.results.range_scores import RowSettings
from stages.evaluation.tuning.coordinate_descent import coordinate_descent, load_part
from stages.metrics import finite
from stages.retrieval.grids import Best, Point, ReadingGrid, best_point
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.source import Source

MOST_POINTS = 10_000
"""Points of a product of grids up to which each is tried; of more, one reading's at a time."""


class Selected(NamedTuple):
    """A row's settings and where they come from; `nll` sums over a lone reading's grid, None without a choice."""

    settings: RowSettings
    best: Best
    nll: np.ndarray | None


def tries_all(grids: Sequence[ReadingGrid]) -> bool:
    """Whether every point of the grids together is tried; else readings are tuned in turn."""
    return len(grids) == 1 or math.prod(n for grid in grids for n in grid.shape) <= MOST_POINTS


def select(row: MemoryRow, grids: Sequence[ReadingGrid], files: Sequence[Path]) -> Selected:
    """The best settings of a row; a lone reading also gets the best ones for every cut-off.

    Args:
        files: what each part of the tuning split left: sums as `grid_nll` gives them where all
            points are tried, else log sums as `save_part` keeps them; none if there is no choice.
    """
    allowed = [source.cutoffs for source in row.sources]
    if files and not tries_all(grids):
        best = coordinate_descent(lambda: map(load_part, files), grids, allowed).best
        return Selected(RowSettings(grids, best.points, []), best, None)
    shape = [n for grid in grids for n in grid.shape]
    nll = np.sum([np.load(file) for file in files], axis=0) if files else np.zeros(shape)
    best = best_point(nll, grids, allowed)
    by_cutoff: list[Point] = []
    if len(grids) == 1:
        by_cutoff = [best_point(nll, grids, [(c,)]).points[0] for c in grids[0].cutoffs]
    return Selected(RowSettings(grids, best.points, by_cutoff), best, nll if files else None)


def describe_row(row: MemoryRow, selected: Selected, tune_split: str | None) -> list[dict[str, Any]]:
    """The readings of a row with their hyperparameters: which were tuned, where, how; JSON."""
    triples = zip(row.sources, selected.best.points, selected.best.interior, strict=True)
    return [_describe_reading(*triple, tune_split) for triple in triples]


def describe_by_cutoff(row: MemoryRow, selected: Selected) -> list[dict[str, Any]]:
    """The settings of a lone reading for every number of entries."""
    return [_describe_point(row.sources[0], point) for point in selected.settings.by_cutoff]


def describe_grid(row: MemoryRow, selected: Selected, tokens: int) -> dict[str, Any] | None:
    """Mean negative log-likelihood of a lone reading, nats per token of the tuning split, [scale][weight].

    It is that at the best number of entries. None where nothing was tuned, or several readings were.
    """
    if selected.nll is None or len(selected.settings.grids) != 1:
        return None
    (grid,), (source,), place = selected.settings.grids, row.sources, selected.best.place
    reading = source.reading
    return {
        "row": row.name,
        "over": source.about.amount,
        "at": grid.cutoffs[place[1]],
        "tokens": tokens,
        "scale_name": reading.scale_name,
        "scales": [reading.scale_of(scale) for scale in grid.scales],
        "weight_name": reading.weight_name,
        "weights": list(grid.weights),
        "nll": [[finite(value / tokens) for value in line] for line in selected.nll[:, place[1], :].tolist()],
    }


def at_edge(row: MemoryRow, selected: Selected) -> list[tuple[str, float]]:
    """The tuned numbers, by name, whose best value lies at the edge of their grid."""
    readings = describe_row(row, selected, None)
    return [(name, reading[name]) for reading in readings for name, inside in reading["interior"].items() if not inside]


def _describe_reading(
    source: Source, point: Point, interior: dict[str, bool], tune_split: str | None
) -> dict[str, Any]:
    reading, about = source.reading, source.about
    names = {"scale": reading.scale_name, "weight": reading.weight_name, "cutoff": about.amount}
    return {
        "sources": list(reading.sources),
        "reader": reading.reader,
        "similarity": reading.similarity,
        "key": reading.key,
        **about.details,
        **_describe_point(source, point),
        "tuned": reading.choices,
        "tune_split": tune_split if reading.choices else None,
        "interior": {names[name]: inside for name, inside in interior.items()},
    }


def _describe_point(source: Source, point: Point) -> dict[str, Any]:
    reading = source.reading
    return {
        source.about.amount: point.cutoff,
        reading.scale_name: reading.scale_of(point.scale),
        reading.weight_name: point.weight,
    }
