"""Readings on top of each other: each mixes its memory with what stands before it.

Shapes: n positions that are read together, V vocabulary.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from stages.retrieval.grids import Point, ReadingGrid
from stages.retrieval.scored_range import Retrieved

Weight = float | Tensor
"""One number for all positions, or [n]."""
Composition = Iterable[tuple[Retrieved, ReadingGrid, Point, Weight]]
"""Entries that each reading retrieves at n positions, its grid, its point and its weight, in the
order of reading.
"""


def compose(log_p: Tensor, log_z: Tensor, composition: Composition) -> tuple[Tensor, Tensor]:
    """log p of the targets after every reading, [n], and each reading's log p_mem, [n, readings].

    Args:
        log_p, log_z: of the model alone, [n], in nats.

    The model gives the target 1/10. Two entries are equally near, and one of them holds it; λ =
    1/2:

    >>> from stages.memory.entries import Entries
    >>> from stages.memory.readers import READERS
    >>> from stages.retrieval.scored_range import retrieve
    >>> memory = retrieve(Entries(torch.zeros(1, 2), torch.tensor([[5, 7]])), torch.tensor([5]))
    >>> grid = ReadingGrid(READERS.load("interpolate")(), scales=(1.0,), cutoffs=(2,), weights=(0.5,))
    >>> reading = (memory, grid, Point(2, 1.0, 0.5), 0.5)
    >>> log_p, log_p_mem = compose(torch.tensor([0.1]).log(), torch.zeros(1), [reading])
    >>> log_p.exp(), log_p_mem.exp()  # 1/2 · 1/10 + 1/2 · 1/2, and the memory's own 1/2
    (tensor([0.3000]), tensor([[0.5000]]))
    """
    log_p_mem = []
    for memory, grid, point, weight in composition:
        log_sums = memory.log_sums([point.scale], [point.cutoff]).at(0, 0)
        log_p = grid.reader.read(log_p, log_z, log_sums, weight)
        log_p_mem.append(log_sums.log_prob)
    return log_p, torch.stack(log_p_mem, -1)


def compose_dense(log_p: Tensor, log_z: Tensor, composition: Composition, rows: slice) -> Tensor:
    """Same as `WeightPolicy.read_dense`, for some of the readings."""
    for memory, grid, point, weight in composition:
        row_weight = weight[rows, None] if isinstance(weight, Tensor) else weight
        stored = memory.stored_tokens(rows, point.scale, point.cutoff)
        log_p = grid.reader.read_dense(log_p, log_z, stored, row_weight)
    return log_p


def read_points(
    log_p: Tensor, log_z: Tensor, retrieved: Retrieved, grid: ReadingGrid, points: Sequence[Point]
) -> list[tuple[Tensor, Tensor]]:
    """log p of the targets and log p_mem, both [n], at several points of one reading.

    Points with the same scale share a pass over the entries.
    """
    results: dict[Point, tuple[Tensor, Tensor]] = {}
    scales = dict.fromkeys(point.scale for point in points)
    for scale in scales:
        points_of_scale = [point for point in points if point.scale == scale]
        cutoffs = sorted({point.cutoff for point in points_of_scale})
        log_sums = retrieved.log_sums([scale], cutoffs)
        for point in points_of_scale:
            memory = log_sums.at(0, cutoffs.index(point.cutoff))
            blended = grid.reader.read(log_p, log_z, memory, point.weight)
            results[point] = (blended, memory.log_prob)
    return [results[point] for point in points]
