"""Hyperparameters of memory readings: the grid, and the best of its points.

A point of a reading is (cut-off, scale, weight): entries read, k, cache size or window; the factor
of their scores, 1/τ or θ; the weight of the memory, λ or α. Arrays over the grid of one reading are
[S, C, G]: scales, cut-offs, weights; of several readings, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.memory.readers import READERS
from stages.memory.readers.reader import Reader
from stages.retrieval.reading import Reading

TEMPERATURE_FRACTIONS = tuple(float(f"{f:.4g}") for f in np.geomspace(0.01, 2, 16))
"""Default grid of τ, as fractions of the spread of scores."""


class Point(NamedTuple):
    """One setting of a reading."""

    cutoff: int
    scale: float
    weight: float


class GridIndex(NamedTuple):
    """Indices of a point into the scales, cut-offs and tried weights of a reading's grid.

    Their order is that of the axes of arrays over the grid.
    """

    scale: int
    cutoff: int
    weight: int


@dataclass(frozen=True)
class ReadingGrid:
    """The grid of a reading's settings, and how it is read."""

    reader: Reader
    scales: tuple[float, ...]
    cutoffs: tuple[int, ...]
    weights: tuple[float, ...]
    off: float | None = None
    """The weight at which memory changes nothing; None: there is none."""
    tries_off: bool = False
    """Whether that weight is tried, too; it is not among `weights`."""
    shown: tuple[float | None, ...] = ()
    """The scales as users give them, τ or θ; an infinite τ is None. Empty: same as `scales`."""

    @property
    def tried(self) -> tuple[float, ...]:
        """All weights that are tried. The one that switches memory off is last, so that it must be
        strictly better.
        """
        return self.weights if self.off is None or not self.tries_off else (*self.weights, self.off)

    def shown_scale(self, scale: float) -> float | None:
        """A scale as users give it, τ or θ; None for an infinite τ."""
        return (self.shown or self.scales)[self.scales.index(scale)]

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.scales), len(self.cutoffs), len(self.tried)

    def is_off(self, weight: float) -> bool:
        """Whether memory with this weight changes nothing, for any scale and cut-off."""
        return self.off is not None and weight == self.off

    def read_tried(self, log_p: Tensor, log_z: Tensor, memory: LogSums) -> Tensor:
        """log p [G, n] with the memory read at every weight that is tried; see `Reader.read`."""
        weights = torch.tensor(self.weights, dtype=log_p.dtype, device=log_p.device)
        log_p_tried = self.reader.read(log_p, log_z, memory, weights[:, None])
        if len(self.tried) == len(self.weights):
            return log_p_tried
        # With memory switched off, log p is that before the reading.
        return torch.cat((log_p_tried, log_p[None]))

    def point_at(self, index: GridIndex) -> Point:
        """The point at indices into `scales`, `cutoffs` and `tried`."""
        return Point(self.cutoffs[index.cutoff], self.scales[index.scale], self.tried[index.weight])

    def index_of(self, point: Point) -> GridIndex:
        """The indices of a point of the grid."""
        return GridIndex(
            self.scales.index(point.scale),
            self.cutoffs.index(point.cutoff),
            self.tried.index(point.weight),
        )


def reading_grid(
    reading: Reading, default_scales: tuple[float, ...], cutoffs: tuple[int, ...]
) -> ReadingGrid:
    """The grid of a completed reading: given numbers, and default grids for those to tune."""
    weights = reading.with_tuned_weight().weight if reading.per_context else reading.weight
    assert isinstance(weights, tuple), "λ and α are spelled out when a reading is completed"
    weight = reading.tunable[reading.weight_name]
    scales, shown = _scales(reading, default_scales)
    return ReadingGrid(
        reader=READERS.load(reading.reader)(),
        scales=scales,
        cutoffs=cutoffs,
        weights=weights,
        off=weight.off,
        # A typed list is tried as it is. Weights for each context start from a weight that is not
        # off.
        tries_off=reading.weight == weight.grid,
        shown=shown,
    )


def _scales(
    reading: Reading, default: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
    """Factors of the scores, 1/τ or θ; and as users give them, without rounding errors of 1/x, an
    infinite τ None.
    """
    temperature = reading.comparison.temperature
    theta = reading.comparison.theta
    typed: tuple[float | None, ...]
    if isinstance(temperature, tuple):
        scales = tuple(1 / number for number in temperature)
        typed = temperature
    elif theta is not None:
        scales = theta if isinstance(theta, tuple) else default
        typed = scales
    else:
        scales = (1.0,) if temperature is None else default
        typed = tuple(1 / scale if scale else None for scale in scales)
    return scales, tuple(map(_without_rounding, typed))


def _without_rounding(number: float | None) -> float | None:
    """Ten digits of a number: 1/x of a rounded 1/x has errors behind these."""
    return None if number is None else float(f"{number:.10g}")


def score_spread(scores: Tensor, similarity: str) -> float:
    """Unit of temperatures: the size of the scores of a sample, [n, k], best first.

    For `l2` the median distance to the k-th neighbour, else the median difference between the best
    score and the k-th; 1 if that is not positive.

    >>> scores = torch.tensor([[-1.0, -2.0, -4.0]])
    >>> score_spread(scores, "dot"), score_spread(scores, "l2")
    (3.0, 4.0)
    """
    # Missing entries are no last ones.
    last = scores.masked_fill(scores.isneginf(), torch.inf).amin(-1)
    spread = -last if similarity == "l2" else scores[:, 0] - last
    return positive_median(spread)


def positive_median(spread: Tensor) -> float:
    """Median of the finite numbers in [n], which belong to positions that retrieve something; 1 if
    not positive.
    """
    spread = spread[spread.isfinite()]
    median = float(spread.median()) if len(spread) else 0.0
    return median if median > 0 else 1.0


def best_points(
    nll: np.ndarray, grids: Sequence[ReadingGrid], allowed: Sequence[Sequence[int]]
) -> tuple[Point, ...]:
    """Point of each reading at the smallest sum.

    Ties go to the first, and NaN counts as infinite.

    Args:
        nll: as `grid_nll` gives it, summed over a split.
        allowed: for each reading, the cut-offs that may be chosen.

    >>> grid = ReadingGrid(READERS.load("interpolate")(), scales=(1.0, 0.5), cutoffs=(4,), weights=(0.1, 0.2))
    >>> best_points(np.array([[[9.0, 8.0]], [[7.0, np.nan]]]), [grid], [(4,)])
    (Point(cutoff=4, scale=0.5, weight=0.1),)
    """
    # Argmin would return the first NaN.
    masked = np.where(np.isnan(nll), np.inf, nll)
    # Each reading has three axes: scales, cut-offs, weights.
    first_axes = range(0, nll.ndim, 3)
    for first_axis, grid, cutoffs in zip(first_axes, grids, allowed, strict=True):
        is_refused = np.array([cutoff not in cutoffs for cutoff in grid.cutoffs])
        shape = [1] * nll.ndim
        shape[first_axis + 1] = -1
        masked = np.where(is_refused.reshape(shape), np.inf, masked)

    best = np.unravel_index(int(np.argmin(masked)), nll.shape)
    points = []
    for first_axis, grid in zip(first_axes, grids, strict=True):
        scale, cutoff, weight = best[first_axis : first_axis + 3]
        points.append(grid.point_at(GridIndex(int(scale), int(cutoff), int(weight))))
    return tuple(points)


def sum_at(nll: np.ndarray, grids: Sequence[ReadingGrid], points: Sequence[Point]) -> float:
    """The sum at a point of each reading; `nll` as for `best_points`."""
    index: list[int] = []
    for grid, point in zip(grids, points, strict=True):
        index += grid.index_of(point)
    return float(nll[tuple(index)])


def interior(
    grids: Sequence[ReadingGrid], points: Sequence[Point], allowed: Sequence[Sequence[int]]
) -> list[dict[str, bool]]:
    """Whether the best scale, cut-off and weight of each reading lie inside its grid: a best value
    at an edge says that the grid should be wider.

    An axis of fewer than three values is left out, as it has no inside. A scale of 0 and a cut-off
    of 1 are no edge, as nothing lies below them. If memory is off, all axes are left out: all
    scales and cut-offs are equally good.

    Args:
        points: the best point of each reading.
        allowed: for each reading, the cut-offs that may be chosen.
    Returns: for each reading, a part of {"scale": …, "weight": …, "cutoff": …}.
    """
    readings = []
    for grid, point, cutoffs in zip(grids, points, allowed, strict=True):
        inside: dict[str, bool | None] = {}
        if not grid.is_off(point.weight):
            inside["scale"] = _inside(grid.scales, point.scale, lowest=0)
            inside["weight"] = _inside(grid.weights, point.weight)
            inside["cutoff"] = _inside(sorted(cutoffs), point.cutoff, lowest=1)
        readings.append({name: value for name, value in inside.items() if value is not None})
    return readings


def _inside(values: Sequence[float], best: float, lowest: float | None = None) -> bool | None:
    """Whether the best of ordered values is neither first nor last; the `lowest` legal value is no
    edge.

    None where there are fewer than three.
    """
    if len(values) < 3:
        return None
    edges = (values[0], values[-1])
    return best == lowest or best not in edges
