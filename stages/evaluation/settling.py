"""From sums over the tuning split to the settings that are used, and how they are told."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stages.errors import UsageError
from stages.evaluation.evaluator import Settings
from stages.evaluation.grids import Best, Point, ReadingGrid, best_point
from stages.evaluation.rows import MemoryRow, ReadingPlan

MOST_POINTS = 250_000
"""Points of a grid beyond which readings must be tuned with shorter lists."""


def check_size(row: MemoryRow) -> None:
    """Raises: UsageError if the readings of a row make a grid that would take hours."""
    points = 1
    for grid in row.grids([1.0] * len(row.plans)):
        points *= len(grid.scales) * len(grid.weights)
    if points > MOST_POINTS:
        raise UsageError(
            f"{row.spelled}: the readings together have {points:,} settings to try, more than "
            f"{MOST_POINTS:,}; give lists such as lambda=0.1/0.2/0.3 in place of tune."
        )


class Settled(NamedTuple):
    """A row's settings and where they come from; `nll` sums over the grid, None without a choice."""

    settings: Settings
    best: Best
    nll: np.ndarray | None


def settle(row: MemoryRow, grids: Sequence[ReadingGrid], sums: Sequence[np.ndarray]) -> Settled:
    """The best settings of a row; a lone reading also gets the best ones for every cut-off.

    Args:
        sums: as `grid_nll` gives them, of each part of the tuning split; none if there is no choice.
    """
    shape = [n for grid in grids for n in grid.shape]
    nll = np.sum(sums, axis=0) if sums else np.zeros(shape)
    best = best_point(nll, grids, [plan.cutoffs for plan in row.plans])
    by_cutoff: list[Point] = []
    if len(grids) == 1:
        by_cutoff = [best_point(nll, grids, [(c,)]).points[0] for c in grids[0].cutoffs]
    return Settled(Settings(grids, best.points, by_cutoff), best, nll if sums else None)


def describe_row(row: MemoryRow, settled: Settled, tune_split: str | None) -> list[dict[str, Any]]:
    """The readings of a row with their hyperparameters: which were tuned, where, how; JSON."""
    triples = zip(row.plans, settled.best.points, settled.best.interior, strict=True)
    return [_describe_reading(*triple, tune_split) for triple in triples]


def describe_by_cutoff(row: MemoryRow, settled: Settled) -> list[dict[str, Any]]:
    """The settings of a lone reading for every number of neighbours."""
    return [_describe_point(row.plans[0], point) for point in settled.settings.by_cutoff]


def describe_grid(settled: Settled, tokens: int) -> dict[str, Any] | None:
    """Mean negative log-likelihood, nats per token of the tuning split, [τ][λ] at the best k."""
    if settled.nll is None or len(settled.settings.grids) != 1:
        return None
    (grid,), place = settled.settings.grids, settled.best.place
    return {
        "k": grid.cutoffs[place[1]],
        "temperature": [_temperature(scale) for scale in grid.scales],
        "lambda": list(grid.weights),
        "nll": (settled.nll[:, place[1], :] / tokens).tolist(),
    }


def at_edge(row: MemoryRow, settled: Settled) -> list[str]:
    """Names of the tuned numbers whose best value lies at the edge of their grid."""
    told = describe_row(row, settled, None)
    return [name for reading in told for name, inside in reading["interior"].items() if not inside]


def _describe_reading(
    plan: ReadingPlan, point: Point, interior: dict[str, bool], tune_split: str | None
) -> dict[str, Any]:
    reading = plan.reading
    names = {"scale": _factor(plan), "weight": "lambda"}
    return {
        "sources": list(reading.sources),
        "reader": reading.reader,
        "similarity": reading.similarity,
        "key": reading.key,
        "exact_distances": plan.exact,
        **_describe_point(plan, point),
        "tuned": reading.choices,
        "tune_split": tune_split if reading.choices else None,
        "interior": {names[name]: inside for name, inside in interior.items()},
    }


def _describe_point(plan: ReadingPlan, point: Point) -> dict[str, Any]:
    factor = _factor(plan)
    scale = point.scale if factor == "theta" else _temperature(point.scale)
    return {"k": point.cutoff, factor: scale, "lambda": point.weight}


def _factor(plan: ReadingPlan) -> str:
    return "temperature" if plan.reading.theta is None else "theta"


def _temperature(scale: float) -> float | None:
    return float(f"{1 / scale:.10g}") if scale else None
