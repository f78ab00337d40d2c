"""From what the tuning split left to the settings that are used, and how they are reported."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.evaluation.figures.range_scores import RowSettings
from stages.evaluation.figures.tuned import TunedRow
from stages.evaluation.tuning.coordinate_descent import coordinate_descent, load_part
from stages.metrics import finite, perplexity
from stages.retrieval.grids import Best, Point, ReadingGrid, at_place, best_point
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.source import Source

TRIED_TOGETHER = 10_000
"""Points of a product of grids up to which each is tried; of more, one reading's at a time."""


class Choice(NamedTuple):
    """The point chosen for a row, JSON.

    Places are those of scale, cut-off and weight in the grid of each reading, one reading after the other.
    """

    place: Sequence[int]
    by_cutoff: Sequence[Sequence[int]]
    """The best places of a lone reading for every cut-off."""
    nll: Sequence[Sequence[float | None]] | None
    """Summed nats over a lone reading's grid at the best cut-off, [scale][weight]; None where nothing was tuned."""
    best_nll: float | None = None
    """Summed nats at `place`; None where nothing was tuned, or a memlm that kept none chose."""
    nll_by_cutoff: Sequence[float | None] = ()
    """Summed nats at each of `by_cutoff`; as empty as that, or where `best_nll` is None."""


class Selected(NamedTuple):
    """A row's settings and where they come from; `nll` as in `Choice`."""

    settings: RowSettings
    best: Best
    nll: Sequence[Sequence[float | None]] | None


def tries_all(grids: Sequence[ReadingGrid]) -> bool:
    """Whether every point of the grids together is tried; else readings are tuned in turn.

    A weight that is tried beside a grid does not count, so that what an older memlm began is tuned as it was.
    """
    spelled = math.prod(len(one) for grid in grids for one in (grid.scales, grid.cutoffs, grid.weights))
    return len(grids) == 1 or spelled <= TRIED_TOGETHER


def choose(row: MemoryRow, grids: Sequence[ReadingGrid], files: Sequence[Path]) -> Choice:
    """The best place of a row's grids; a lone reading also gets the best ones for every cut-off.

    Args:
        files: what each part of the tuning split left: sums as `grid_nll` gives them where all
            points are tried, else log sums as `save_part` keeps them; none if there is no choice.
    """
    if files and not tries_all(grids):
        end = coordinate_descent(lambda: map(load_part, files), grids, _allowed(row))
        return Choice(end.best.place, [], None, finite(end.nll[-1]))
    shape = [n for grid in grids for n in grid.shape]
    nll = np.sum([_sums(file, shape) for file in files], axis=0) if files else np.zeros(shape)
    place = best_point(nll, grids, _allowed(row)).place
    best = finite(float(nll[tuple(place)])) if files else None
    if len(grids) > 1:
        return Choice(place, [], None, best)
    shown = nll[:, :, _shown_weights(grids[0], place)]
    by_cutoff = [best_point(shown, grids, [(c,)]).place for c in grids[0].cutoffs]
    sums = [[finite(value) for value in line] for line in nll[:, place[1], :].tolist()]
    at_cutoffs = [finite(float(nll[tuple(place)])) for place in by_cutoff]
    return Choice(place, by_cutoff, sums, best, at_cutoffs) if files else Choice(place, by_cutoff, None)


def _sums(file: Path, shape: Sequence[int]) -> np.ndarray:
    """Sums of a part, of this shape; infinite where a weight was not tried."""
    kept = np.load(file)
    sums = np.full(shape, np.inf)
    sums[tuple(map(slice, kept.shape))] = kept
    return sums


def _shown_weights(grid: ReadingGrid, place: Sequence[int]) -> slice:
    """The places of the weights that reports show: that at which memory changes nothing only where it is chosen."""
    return slice(None) if grid.is_off(grid.tried[place[2]]) else slice(len(grid.weights))


def select(row: MemoryRow, grids: Sequence[ReadingGrid], choice: Choice | None = None) -> Selected:
    """The settings at what was chosen for a row; None: where no reading leaves a choice.

    A weight that is learned is so for the chosen number of entries alone.
    """
    choice = choose(row, grids, []) if choice is None else choice
    best = at_place(choice.place, grids, _allowed(row))
    by_cutoff = [] if row.learned else [grids[0].point_at(*place) for place in choice.by_cutoff]
    return Selected(RowSettings(grids, best.points, by_cutoff), best, choice.nll)


def tuned_row(row: MemoryRow, grids: Sequence[ReadingGrid], choice: Choice, tokens: int) -> TunedRow:
    """Figures of a row on the tuning split, from so many tokens."""
    weights = choice.place[2::3]
    return TunedRow(
        None if choice.best_nll is None else perplexity(choice.best_nll, tokens),
        row.sources[0].about.amount,
        [
            (cutoff, None if nll is None else perplexity(nll, tokens))
            for cutoff, nll in zip(grids[0].cutoffs, choice.nll_by_cutoff, strict=False)
        ],
        [source.reading.weight_name for source in row.sources],
        [
            len(grid.weights) > 1 and grid.tried[at] == min(grid.weights)
            for grid, at in zip(grids, weights, strict=True)
        ],
        [len(grid.tried) > 1 and grid.is_off(grid.tried[at]) for grid, at in zip(grids, weights, strict=True)],
    )


def _allowed(row: MemoryRow) -> list[Sequence[int]]:
    """The cut-offs that each reading may be set to."""
    return [source.cutoffs for source in row.sources]


def describe_row(row: MemoryRow, selected: Selected, tune_split: str | None) -> list[dict[str, Any]]:
    """The readings of a row with their hyperparameters: which were tuned or learned, where, how; JSON.

    The number of a learned weight is the best for all contexts.
    """
    settings = selected.settings
    readings = zip(row.sources, settings.grids, settings.points, selected.best.interior, strict=True)
    described = [_describe_reading(*one, tune_split) for one in readings]
    if settings.network is not None:
        described[-1]["learned"] = row.sources[-1].reading.weight_name
    return described


def describe_by_cutoff(row: MemoryRow, selected: Selected) -> list[dict[str, Any]]:
    """The settings of a lone reading for every number of entries."""
    grid = selected.settings.grids[0]
    return [_describe_point(row.sources[0], grid, point) for point in selected.settings.by_cutoff]


def describe_grid(row: MemoryRow, selected: Selected, tokens: int) -> dict[str, Any] | None:
    """Mean negative log-likelihood of a lone reading, nats per token of the tuning split, [scale][weight].

    It is that at the best number of entries. None where nothing was tuned, or several readings were.
    """
    if selected.nll is None:
        return None
    (grid,), (source,), place = selected.settings.grids, row.sources, selected.best.place
    reading, places = source.reading, range(len(grid.tried))[_shown_weights(grid, place)]
    shown = sorted(places, key=grid.tried.__getitem__)
    return {
        "row": row.name,
        "over": source.about.amount,
        "at": grid.cutoffs[place[1]],
        "tokens": tokens,
        "scale_name": reading.scale_name,
        "scales": [reading.scale_of(scale) for scale in grid.scales],
        "weight_name": reading.weight_name,
        "weights": [grid.tried[at] for at in shown],
        "nll": [[_mean(line[at], tokens) for at in shown] for line in selected.nll],
    }


def _mean(total: float | None, tokens: int) -> float | None:
    return None if total is None else total / tokens


def _describe_reading(
    source: Source, grid: ReadingGrid, point: Point, interior: dict[str, bool], tune_split: str | None
) -> dict[str, Any]:
    reading, about = source.reading, source.about
    names = {"scale": reading.scale_name, "weight": reading.weight_name, "cutoff": about.amount}
    if reading.learned:
        interior = {name: inside for name, inside in interior.items() if name != "weight"}
    return {
        "sources": list(reading.sources),
        "reader": reading.reader,
        "similarity": reading.similarity,
        "key": reading.key,
        **about.details,
        **_describe_point(source, grid, point),
        "tuned": reading.choices,
        "tune_split": tune_split if reading.choices else None,
        "interior": {names[name]: inside for name, inside in interior.items()},
    }


def _describe_point(source: Source, grid: ReadingGrid, point: Point) -> dict[str, Any]:
    """Numbers at a point; a tuned scale is None where memory changes nothing: all are as good."""
    reading = source.reading
    any_scale = len(grid.scales) > 1 and grid.is_off(point.weight)
    return {
        source.about.amount: point.cutoff,
        reading.scale_name: None if any_scale else reading.scale_of(point.scale),
        reading.weight_name: point.weight,
    }
