"""The interface of weight policies: the weights of a row's memories, and how they are chosen.

Shapes: n positions that are read together, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.memory.predicted_gain import PredictedGain
from stages.retrieval.grids import GridIndex, Point, ReadingGrid, interior
from stages.retrieval.registries import WEIGHTS
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.sources.source import Needs, Source
from stages.retrieval.weights.composition import (
    Composition,
    Weight,
    compose,
    compose_dense,
    read_points,
)

Record = Mapping[str, Any]
"""Outcome of a choice, JSON."""
Arrays = dict[str, np.ndarray]
"""Arrays from observing a range, by name; the choice is made from these."""


class Pass(NamedTuple):
    """One pass over the whole tuning split."""

    name: str
    words: str
    """Text shown while it runs, before the name of the split."""
    contexts: bool = False
    """Whether the features of `Needs.context` are computed."""


class Choice(NamedTuple):
    """Chosen points of the grids of a row."""

    points: tuple[Point, ...]
    """One point for each reading."""
    by_cutoff: Sequence[Point] = ()
    """The best points of a lone reading for every cut-off."""
    nll: Sequence[Sequence[float | None]] | None = None
    """Summed nats over a lone reading's grid at the best cut-off, [scale][weight]; None where
    nothing was tuned.
    """
    best_nll: float | None = None
    """Summed nats at `points`; None where nothing was tuned."""
    nll_by_cutoff: Sequence[float | None] = ()
    """Summed nats at each of `by_cutoff`."""

    def record(self, grids: Sequence[ReadingGrid]) -> Record:
        """The choice as JSON, from which `of_record` restores it with the same grids.

        Points are written as indices: reports that were made before hold these. They are scale,
        cut-off and weight, one reading after the other.
        """
        indices: list[int] = []
        for grid, point in zip(grids, self.points, strict=True):
            indices += grid.index_of(point)
        return {
            "indices": indices,
            "by_cutoff": [list(grids[0].index_of(point)) for point in self.by_cutoff],
            "nll": self.nll,
            "best_nll": self.best_nll,
            "nll_by_cutoff": self.nll_by_cutoff,
        }

    @classmethod
    def of_record(cls, record: Record, grids: Sequence[ReadingGrid]) -> Self:
        """The choice whose `record` was made with these grids."""
        indices = record["indices"]
        points = []
        for number, grid in enumerate(grids):
            index = GridIndex(*indices[3 * number : 3 * number + 3])
            points.append(grid.point_at(index))
        return cls(
            points=tuple(points),
            by_cutoff=[grids[0].point_at(GridIndex(*index)) for index in record["by_cutoff"]],
            nll=record["nll"],
            best_nll=record["best_nll"],
            nll_by_cutoff=record["nll_by_cutoff"],
        )


class Shares(NamedTuple):
    """Contribution of a reading's memory to the distributions of n positions."""

    factor: Tensor
    """Factor [n] on the probabilities of tokens that the memory lacks."""
    entries: Sequence[Tensor]
    """Shares of its entries, [n, k] for each part; they sum to 1, or to 0 if there are none."""


class ReadResult(NamedTuple):
    """Result of a row at n positions: log p of the targets [n], log p_mem [n, readings], and each
    reading's weight.

    `sums`: more figures, summed over the positions.
    """

    log_p: Tensor
    log_p_mem: Tensor
    weights: Sequence[Weight]
    sums: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class WeightPolicy(ABC):
    """The weights of the memories of one row.

    An evaluation is a fold over `passes`. Each pass observes every range and makes a choice from
    the observations. The policy continues with that choice in its `choices`.
    """

    row: MemoryRow
    grids: Sequence[ReadingGrid]
    choices: Mapping[str, Record] = field(default_factory=dict)
    """Choices by the name of the pass that made each."""

    passes: ClassVar[tuple[Pass, ...]] = ()
    needs: ClassVar[Needs] = Needs()
    """Requirements beyond those of the row."""

    # Finding the weights

    def observe(self, step: str, block: ScoredRange) -> Arrays:
        """Arrays of a range for the choice of the pass `step`."""
        return {}

    def choose(self, step: str, observed: Iterable[Arrays]) -> Record:
        """The choice from all observations of a pass; they may be iterated more than once."""
        return {}

    def after(self, step: str, choice: Record) -> Self:
        """The policy with a choice added."""
        return replace(self, choices={**self.choices, step: choice})

    @property
    def candidates(self) -> Sequence[Point]:
        """Points of a lone reading from which another measure than likelihood may choose."""
        return ()

    def at(self, candidate: Point) -> Self:
        """The policy at one of its candidates, whatever its likelihood."""
        raise NotImplementedError(f"{type(self).__name__} has no candidates")

    def settle(self, candidate: Point, observed: Iterable[Arrays]) -> Record:
        """The choice of a candidate by another measure; the record has its likelihood, too."""
        raise NotImplementedError(f"{type(self).__name__} has no candidates")

    def scratch_bytes(self, tokens: int) -> int:
        """Bytes of the observations of `tokens` tokens, if more than a few sums."""
        return 0

    @property
    @abstractmethod
    def chosen(self) -> Choice:
        """Points of the grids, once they are chosen."""

    @property
    def best(self) -> Sequence[Point]:
        """The chosen points of the grids."""
        return self.chosen.points

    @property
    def points(self) -> Sequence[Point]:
        """The settings of each reading."""
        return self.best

    @cached_property
    def curve(self) -> list[Point]:
        """The settings of a lone reading for every cut-off; empty if weights differ by context, or
        none is reported.

        A point of the curve has one weight for all contexts, so weights by context have no curve.
        """
        if self.row.sources[-1].reading.per_context:
            return []
        return list(self.chosen.by_cutoff)

    @property
    def allowed(self) -> list[Sequence[int]]:
        """The cut-offs that each reading may be set to."""
        return [source.cutoffs for source in self.row.sources]

    # Reading

    @property
    def searches_where(self) -> PredictedGain | None:
        """Predictor of the positions to search neighbours for; None: all."""
        return None

    @cached_property
    def reading_row(self) -> MemoryRow:
        """The row, without entries that the chosen settings do not read."""
        return (
            self.row if self.curve else self.row.narrowed([point.cutoff for point in self.points])
        )

    def weights(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Sequence[Weight]:
        """Each reading's weight at some rows of a range."""
        return [point.weight for point in self.points]

    def composition(self, retrieved: Sequence[Retrieved], weights: Sequence[Weight]) -> Composition:
        """The readings in their order, with these weights; without those for which nothing is
        given.
        """
        return zip(retrieved, self.grids, self.points, weights, strict=False)

    def read(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> ReadResult:
        """Read the targets of some rows of a range with the entries that the row retrieves."""
        log_p = block.lm.log_p[rows]
        log_z = block.lm.log_z[rows]
        weights = self.weights(block, rows, retrieved)
        # without a curve one pass over the entries is enough
        if not self.curve:
            return ReadResult(
                *compose(log_p, log_z, self.composition(retrieved, weights)),
                weights,
                self.no_sums(),
            )
        reads = read_points(log_p, log_z, retrieved[0], self.grids[0], self.curve)
        main, memory = reads[self.curve.index(self.points[0])]
        sums = np.array([-float(read.sum(dtype=torch.float64)) for read, _ in reads])
        return ReadResult(main, memory[:, None], weights, {"nll_by_cutoff": sums})

    def read_dense(
        self,
        log_p: Tensor,
        log_z: Tensor,
        retrieved: Sequence[Retrieved],
        rows: slice,
        weights: Sequence[Weight],
    ) -> Tensor:
        """Log-probabilities of every token, [r, V], for `rows` of n positions.

        Args:
            log_p, log_z: of the model alone for these rows, [r, V] and [r], in nats.
            retrieved, weights: of all n positions, as for `read` and in its result.
        """
        return compose_dense(log_p, log_z, self.composition(retrieved, weights), rows)

    def dense(self, block: ScoredRange, log_p: Tensor) -> Tensor:
        """Log-probabilities of every token at all counted rows of a range, memory included, float32
        [c, V].

        Args:
            log_p: by the model alone, [c, V].
        """
        done = 0
        parts = []
        for rows, retrieved in self.row.retrieve(block):
            weights = self.weights(block, rows, retrieved)
            log_z = block.lm.log_z[rows]
            n = len(log_z)
            parts.append(
                self.read_dense(log_p[done : done + n], log_z, retrieved, slice(0, n), weights)
            )
            done += n
        return torch.cat(parts)

    def shares(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> list[Shares]:
        """Shares of each reading's memory at some rows of a range, and of its entries."""
        log_z = block.lm.log_z[rows]
        certain = torch.zeros_like(log_z)
        weights = self.weights(block, rows, retrieved)
        shares = []
        for memory, grid, point, weight in self.composition(retrieved, weights):
            sums = memory.log_sums([point.scale], [point.cutoff]).at(0, 0)
            # A token of probability 1 that the memory lacks shows the factor of all such tokens.
            no_entries = torch.full_like(sums.total, -torch.inf)
            absent = LogSums(no_entries, sums.total, sums.max_score)
            factor = grid.reader.read(certain, log_z, absent, weight).exp()
            entry_shares = memory.weights(point.scale, point.cutoff)
            shares.append(Shares(factor, entry_shares))
        return shares

    def no_sums(self) -> Mapping[str, np.ndarray]:
        """The `sums` of no position."""
        return {"nll_by_cutoff": np.zeros(len(self.curve))}

    # Reports

    @property
    def files(self) -> Mapping[str, Record]:
        """More files of a report whose first row this is, JSON, by name."""
        return {}

    def describe(self, tune_split: str | None) -> list[dict[str, Any]]:
        """The readings with their hyperparameters: which were tuned, where, how; JSON."""
        inside = interior(self.grids, self.best, self.allowed)
        readings = zip(self.row.sources, self.grids, self.points, inside, strict=True)
        return [
            _describe_reading(source, grid, point, is_inside, tune_split)
            for source, grid, point, is_inside in readings
        ]

    def describe_points(self, points: Sequence[Point]) -> list[dict[str, Any]]:
        """Settings of a lone reading, JSON."""
        return [_describe_point(self.row.sources[0], self.grids[0], point) for point in points]

    def describe_grid(self, tokens: int) -> dict[str, Any] | None:
        """Nats per token over the grid of a lone reading that was tuned on `tokens` tokens, JSON;
        None for others.
        """
        return None


def open_policies(
    rows: Sequence[MemoryRow], tuned: bool, spreads: Sequence[Sequence[float]] | None = None
) -> list[WeightPolicy]:
    """The policy of each row.

    Args:
        tuned: whether there is a tuning split; then even a row without a choice is measured there,
        for comparison.
        spreads: spreads of scores in a sample, by row and source; None: not needed, or not known
        yet.
    """
    if spreads is None:
        spreads = [[1.0] * len(row.sources) for row in rows]
    policies = []
    for row, row_spreads in zip(rows, spreads, strict=True):
        name = row.sources[-1].reading.policy if tuned else "fixed"
        policy = WEIGHTS.load(name)(row, row.grids(row_spreads))
        policies.append(policy)
    return policies


def restored(row: MemoryRow, record: Record) -> WeightPolicy:
    """The policy of an evaluation's first row, from its report's file `CHOICES`."""
    policy = open_policies([row], tuned=True, spreads=[record["spreads"]])[0]
    return replace(policy, choices=record["choices"])


def _describe_reading(
    source: Source,
    grid: ReadingGrid,
    point: Point,
    interior: Mapping[str, bool],
    tune_split: str | None,
) -> dict[str, Any]:
    """One reading of a report, JSON; `interior`: as `grids.interior` gives it."""
    reading = source.reading
    about = source.about
    names = {"scale": reading.scale_name, "weight": reading.weight_name, "cutoff": about.amount}
    return {
        "sources": list(reading.sources),
        "reader": reading.reader,
        "similarity": reading.comparison.similarity,
        "key": reading.comparison.key,
        **about.details,
        **_describe_point(source, grid, point),
        "tuned": reading.choices,
        "tune_split": tune_split if reading.choices else None,
        "interior": {names[name]: inside for name, inside in interior.items()},
    }


def _describe_point(source: Source, grid: ReadingGrid, point: Point) -> dict[str, Any]:
    """Numbers at a point; a tuned scale is None if memory changes nothing, since all are equally
    good.
    """
    any_scale = len(grid.scales) > 1 and grid.is_off(point.weight)
    return {
        source.about.amount: point.cutoff,
        source.reading.scale_name: None if any_scale else grid.shown_scale(point.scale),
        source.reading.weight_name: point.weight,
    }
