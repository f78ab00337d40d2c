"""Which cells of memory a prediction was read from, and how much of the final distribution each one carried.

Shapes: n positions, k cells a position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stages.evaluation.readings.consulted import Consulted
from stages.evaluation.readings.external import ExternalPlan
from stages.evaluation.readings.recalled import Part, Recalled
from stages.evaluation.readings.rows import MemoryRow
from stages.evaluation.results.range_scores import RowSettings
from stages.evaluation.tuning.grids import Point, ReadingGrid
from stages.memory.cells import Masses
from stages.memory.external import best_first, scores_from_distances


@dataclass(frozen=True)
class ReadCells:
    """Cells of one kind that n positions read in one of the readings.

    `places` int64 [n, k]: rows of the datastore (`external`) or positions of the text itself; -1 where missing.
    `values` int64 [n, k]: the tokens that they hold, -1 where missing.
    `weights` float [n, k]: shares of the reading's memory; those of all its kinds together sum to 1.
    `carried` float [n, k]: shares of the final distribution: what each adds to the probability of its token.
    """

    reading: int
    external: bool
    places: Tensor
    values: Tensor
    weights: Tensor
    carried: Tensor


@dataclass(frozen=True)
class Shares:
    """What final distributions are made of: `model` [n] and `memories` [n, readings], which sum to 1."""

    model: Tensor
    memories: Tensor


def read_cells(row: MemoryRow, settings: RowSettings, consulted: Consulted) -> Iterator[tuple[Shares, list[ReadCells]]]:
    """The cells of a range, for a few positions at a time, in order.

    Args:
        row, settings: the readings, and the numbers they are read with.
        consulted: the range; all of its tokens count.
    """
    row = row.narrowed([point.cutoff for point in settings.points])
    neighbors = {id(plan): _neighbors(plan, consulted) for plan in row.parts(ExternalPlan)}
    for rows, recalled in row.recall(consulted):
        places = torch.arange(len(consulted.scored), device=consulted.scored.log_z.device)[rows]
        shares = shares_of(recalled, settings.grids, settings.points, consulted.scored.log_z[rows])
        cells = []
        for number, (plan, one) in enumerate(zip(row.plans, recalled, strict=True)):
            weights = cell_weights(one, settings.points[number].scale, settings.points[number].cutoff)
            for kind, part, weight in zip(plan.parts, one.parts, weights, strict=True):
                where = neighbors[id(kind)][places] if id(kind) in neighbors else _positions(part, consulted, places)
                values = part.cells.values.long()
                carried = weight * shares.memories[:, number, None]
                found = ReadCells(number, id(kind) in neighbors, where, values, weight, carried)
                cells.append(found)
        yield shares, cells


def shares_of(
    recalled: Sequence[Recalled], grids: Sequence[ReadingGrid], points: Sequence[Point], log_z: Tensor
) -> Shares:
    """How much of the final distribution the model and each reading's memory make up; log_z [n]."""
    kept = [_kept(one, grid.reader, point, log_z) for one, grid, point in zip(recalled, grids, points, strict=True)]
    left = torch.ones_like(log_z)
    memories = []
    for one in reversed(kept):
        memories.append((1 - one) * left)
        left = left * one
    return Shares(left, torch.stack(memories[::-1], -1))


def _kept(recalled: Recalled, reader: Any, point: Point, log_z: Tensor) -> Tensor:
    """The factor [n] by which a reading makes probabilities smaller of tokens that its memory lacks."""
    masses = recalled.masses([point.scale], [point.cutoff]).at(0, 0)
    absent = Masses(torch.full_like(masses.total, -torch.inf), masses.total, masses.peak)
    kept: Tensor = reader.read(torch.zeros_like(log_z), log_z, absent, point.weight).exp()
    return kept


def cell_weights(recalled: Recalled, scale: float, cutoff: int) -> list[Tensor]:
    """Softmax of the scores over the cells of all parts that are read, [n, k] each; zeros where there are none."""
    scores = [_scores_read(part, cutoff) for part in recalled.parts]
    joined = torch.cat(scores, -1)
    scaled = torch.where(joined.isneginf(), joined, joined * scale)
    weights = scaled.softmax(-1).nan_to_num(nan=0.0)
    return list(weights.split([part.shape[1] for part in scores], -1))


def _scores_read(part: Part, cutoff: int) -> Tensor:
    """Scores [n, k] of the cells that a cut-off reads; -inf of the others."""
    cells, reads = part.cells, cutoff if part.reads is None else part.reads
    reach = reads if cells.least is None else cells.least.clamp(min=reads)[:, None]
    places = torch.arange(cells.scores.shape[1], device=cells.scores.device)
    return cells.scores.float().masked_fill(places >= reach, -torch.inf)


def _neighbors(plan: ExternalPlan, consulted: Consulted) -> Tensor:
    """Rows of the datastore in the order of the plan's cells, int64 [n, k], -1 where missing."""
    assert consulted.found is not None
    ids = torch.from_numpy(consulted.found.ids[:, : plan.k])
    if plan.recompute:
        distances = torch.from_numpy(plan.recomputed(consulted).distances)
        ids, _ = best_first(ids, scores_from_distances(distances, plan.metric))
    return ids.to(consulted.scored.targets.device)


def _positions(part: Part, consulted: Consulted, places: Tensor) -> Tensor:
    """Positions of the split that recent cells are of, int64 [n, k]: the nearest first; -1 where missing."""
    values = part.cells.values
    own = consulted.scored.start + places[:, None]
    back = 1 + torch.arange(values.shape[1], device=values.device)
    return torch.where(values >= 0, own - back, -1)
