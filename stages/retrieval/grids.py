"""Hyperparameters of memory readings: the grid, its sums over a split, and the best point.

A point of a reading is (cut-off, scale, weight): entries read, k, cache size or window; the factor of their scores,
1/τ or θ; the weight of the memory, λ or α. Arrays over the
grid of one reading are [S, C, G]: scales, cut-offs, weights; of several readings, one after the
other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.memory.hyperparameter import Hyperparameter
from stages.memory.readers import READERS
from stages.memory.readers.reader import Reader
from stages.retrieval.reading import Reading
from stages.retrieval.retrieved import Retrieved

TEMPERATURE_FRACTIONS = tuple(float(f"{f:.4g}") for f in np.geomspace(0.01, 2, 16))
"""Default grid of τ, as fractions of the spread of scores."""


class Point(NamedTuple):
    """One setting of a reading."""

    cutoff: int
    scale: float
    weight: float


@dataclass(frozen=True)
class ReadingGrid:
    """The grid of a reading's settings, and how it is read."""

    reader: Reader
    scales: tuple[float, ...]
    cutoffs: tuple[int, ...]
    weights: tuple[float, ...]
    off: float | None = None
    """The weight at which memory changes nothing; None: there is none."""
    beside: tuple[float, ...] = ()
    """That weight, where it is tried beside `weights`, of which it is none."""

    @property
    def tried(self) -> tuple[float, ...]:
        """All weights that are tried: that at which memory changes nothing is the last, so that it must be better."""
        return self.weights + self.beside

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.scales), len(self.cutoffs), len(self.tried)

    def is_off(self, weight: float) -> bool:
        """Whether memory read with a weight changes nothing, whatever the scale and the cut-off."""
        return self.off is not None and weight == self.off

    def read_tried(self, log_p: Tensor, log_z: Tensor, memory: LogSums) -> Tensor:
        """log p [G, n] with the memory read at every weight that is tried; see `Reader.read`."""
        weights = torch.tensor(self.weights, dtype=log_p.dtype, device=log_p.device)[:, None]
        read = self.reader.read(log_p, log_z, memory, weights)
        return torch.cat((read, *(log_p[None] for _ in self.beside)))

    def point_at(self, scale: int, cutoff: int, weight: int) -> Point:
        """The point at a place of the grid: indices into `scales`, `cutoffs`, `tried`."""
        return Point(self.cutoffs[cutoff], self.scales[scale], self.tried[weight])


def reading_grid(reading: Reading, default_scales: tuple[float, ...], cutoffs: tuple[int, ...]) -> ReadingGrid:
    """The grid of a completed reading: numbers as given, defaults where they are to be tuned."""
    weights = reading.with_tuned_weight().weight if reading.learned else reading.weight
    assert isinstance(weights, tuple), "λ and α are spelled out when a reading is completed"
    weight = reading.tunable[reading.weight_name]
    return ReadingGrid(
        reader=READERS.load(reading.reader)(),
        scales=_scales(reading, default_scales),
        cutoffs=cutoffs,
        weights=weights,
        off=weight.off,
        beside=_beside(reading, weight),
    )


def _beside(reading: Reading, weight: Hyperparameter) -> tuple[float, ...]:
    """The weight at which memory changes nothing, where the default grid is tried; a learned one starts from others."""
    return () if weight.off is None or reading.weight != weight.grid else (weight.off,)


def _scales(reading: Reading, default: tuple[float, ...]) -> tuple[float, ...]:
    """Factors of the scores: 1/τ, or θ."""
    if isinstance(reading.theta, tuple):
        return reading.theta
    if isinstance(reading.temperature, tuple):
        return tuple(1 / temperature for temperature in reading.temperature)
    if reading.theta is None and reading.temperature is None:
        return (1.0,)
    return default


def score_spread(scores: Tensor, similarity: str) -> float:
    """Unit of temperatures: the size of the scores of a sample, [n, k], best first.

    For `l2` the median distance to the k-th neighbour, else the median of how far its score lies
    below the best; 1 if that is not positive.
    """
    last = scores.masked_fill(scores.isneginf(), torch.inf).amin(-1)
    spread = -last if similarity == "l2" else scores[:, 0] - last
    spread = spread[spread.isfinite()]
    median = float(spread.median()) if len(spread) else 0.0
    return median if median > 0 else 1.0


def grid_nll(log_p: Tensor, log_z: Tensor, retrieved: Sequence[Retrieved], grids: Sequence[ReadingGrid]) -> np.ndarray:
    """Summed negative log-likelihood of n targets at every point of the grid, float64.

    Args:
        log_p, log_z: [n], of the model alone, in nats.
        retrieved: what each reading reads, in the order of reading.
        grids: of each reading.
    Returns: [S, C, G] for one reading, [S, C, G, S', C', G'] for two, and so on.
    """
    log_sums = [one.log_sums(grid.scales, grid.cutoffs) for one, grid in zip(retrieved, grids, strict=True)]
    return _sweep(log_p, log_z, log_sums, grids).cpu().numpy()


def _sweep(log_p: Tensor, log_z: Tensor, log_sums: Sequence[LogSums], grids: Sequence[ReadingGrid]) -> Tensor:
    grid, later = grids[0], grids[1:]
    sums = []
    for scale in range(len(grid.scales)):
        for cutoff in range(len(grid.cutoffs)):
            read = grid.read_tried(log_p, log_z, log_sums[0].at(scale, cutoff))
            if later:
                sums += [_sweep(one, log_z, log_sums[1:], later) for one in read]
            else:
                sums.append(-read.sum(-1, dtype=torch.float64))
    return torch.stack(sums).view(*(n for one in grids for n in one.shape))


def compose(
    log_p: Tensor,
    log_z: Tensor,
    retrieved: Sequence[Retrieved],
    grids: Sequence[ReadingGrid],
    points: Sequence[Point],
    last: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """log p of the targets after every reading, [n], and each reading's log p_mem, [n] each.

    Args:
        last: the last reading's weight at each position, [n]; None: that of its point.
    """
    log_p_mem = []
    for one, grid, point, weight in zip(retrieved, grids, points, _weights(points, last), strict=True):
        log_sums = one.log_sums([point.scale], [point.cutoff]).at(0, 0)
        log_p = grid.reader.read(log_p, log_z, log_sums, weight)
        log_p_mem.append(log_sums.log_prob)
    return log_p, log_p_mem


def compose_dense(
    log_p: Tensor,
    log_z: Tensor,
    retrieved: Sequence[Retrieved],
    rows: slice,
    grids: Sequence[ReadingGrid],
    points: Sequence[Point],
    last: Tensor | None = None,
) -> Tensor:
    """Log-probabilities of every token after every reading, [r, V].

    Args:
        log_p, log_z: of the model alone, [r, V] and [r], in nats.
        retrieved: what each reading reads, in the order of reading, of n positions, of which `rows` are these r.
        last: the last reading's weight at each of the n positions; None: that of its point.
    """
    own = None if last is None else last[rows, None]
    for one, grid, point, weight in zip(retrieved, grids, points, _weights(points, own), strict=True):
        log_sums = one.dense(rows, point.scale, point.cutoff, log_p.shape[1])
        log_p = grid.reader.read_dense(log_p, log_z, log_sums, weight)
    return log_p


def _weights(points: Sequence[Point], last: Tensor | None) -> list[float | Tensor]:
    """The weight of each reading."""
    weights: list[float | Tensor] = [point.weight for point in points]
    return weights if last is None else [*weights[:-1], last]


def read_points(
    log_p: Tensor, log_z: Tensor, retrieved: Retrieved, grid: ReadingGrid, points: Sequence[Point]
) -> list[tuple[Tensor, Tensor]]:
    """log p of the targets and log p_mem, both [n], at several points of one reading.

    Points with the same scale share a pass over the entries.
    """
    read: dict[Point, tuple[Tensor, Tensor]] = {}
    for scale in dict.fromkeys(point.scale for point in points):
        alike = [point for point in points if point.scale == scale]
        cutoffs = sorted({point.cutoff for point in alike})
        log_sums = retrieved.log_sums([scale], cutoffs)
        for point in alike:
            at = log_sums.at(0, cutoffs.index(point.cutoff))
            read[point] = grid.reader.read(log_p, log_z, at, point.weight), at.log_prob
    return [read[point] for point in points]


class Best(NamedTuple):
    """The best point of a grid, and for each number with three or more values if it lies inside."""

    points: tuple[Point, ...]
    interior: tuple[dict[str, bool], ...]
    place: tuple[int, ...]


def best_point(nll: np.ndarray, grids: Sequence[ReadingGrid], allowed: Sequence[Sequence[int]]) -> Best:
    """The point with the smallest sum, the first of equals; sums that are no number count as infinite.

    Args:
        nll: as `grid_nll` gives it, summed over a split.
        allowed: for each reading, the cut-offs that may be chosen.
    """
    masked = np.where(np.isnan(nll), np.inf, nll)
    for number, (grid, cutoffs) in enumerate(zip(grids, allowed, strict=True)):
        refused = np.array([cutoff not in cutoffs for cutoff in grid.cutoffs])
        shape = [-1 if axis == 3 * number + 1 else 1 for axis in range(nll.ndim)]
        masked = np.where(refused.reshape(shape), np.inf, masked)
    return at_place([int(i) for i in np.unravel_index(int(np.argmin(masked)), nll.shape)], grids, allowed)


def at_place(place: Sequence[int], grids: Sequence[ReadingGrid], allowed: Sequence[Sequence[int]]) -> Best:
    """The point that is chosen at a place of the grids, scale, cut-off and weight of each reading; see `best_point`."""
    by_reading = [place[3 * i : 3 * i + 3] for i in range(len(grids))]
    return Best(
        tuple(grid.point_at(*where) for grid, where in zip(grids, by_reading, strict=True)),
        tuple(_interior(*one) for one in zip(grids, by_reading, allowed, strict=True)),
        tuple(place),
    )


def _interior(grid: ReadingGrid, place: Sequence[int], allowed: Sequence[int]) -> dict[str, bool]:
    """For each of scale, cut-off and weight with an inside: whether the best is not at the grid's edge.

    A factor of 0 and a cut-off of 1 are no edge: there is nothing below them. Where no memory is read, nothing has
    an edge: all scales and cut-offs are as good.
    """
    scale, cutoff, weight = place
    if grid.is_off(grid.tried[weight]):
        return {}
    inside = {"scale": _inside(grid.scales, grid.scales[scale], least=0)}
    inside["weight"] = _inside(grid.weights, grid.weights[weight])
    inside["cutoff"] = _inside(sorted(allowed), grid.cutoffs[cutoff], least=1)
    return {name: value for name, value in inside.items() if value is not None}


def _inside(values: Sequence[float], best: float, least: float | None = None) -> bool | None:
    """Whether the best of ordered values is neither the first nor the last; the least that is legal is no edge.

    None where there are fewer than three.
    """
    if len(values) < 3:
        return None
    return best == least or best not in (values[0], values[-1])
