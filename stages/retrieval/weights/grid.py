"""One weight for all contexts: as given, or the best of a grid on the tuning split.

Shapes: n tokens; S scales, C cut-offs and G weights of a reading's grid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice, product
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.metrics import finite
from stages.retrieval.grids import GridIndex, Point, ReadingGrid, best_points, sum_at
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.policy import Arrays, Choice, Pass, Record, WeightPolicy

TRIED_TOGETHER = 10_000
"""Maximum number of points of a joint grid; beyond it, one reading is tuned at a time."""
TUNE = Pass("tune", "tuning on")


@dataclass(frozen=True)
class Fixed(WeightPolicy):
    """One number for each setting of every reading."""

    with_curve: bool = True
    """Whether a lone reading is read with every cut-off of its grid."""

    @cached_property
    def chosen(self) -> Choice:
        # Without sums all points are equally good, and the first one is chosen.
        even = _no_nll(self.grids)
        points = best_points(even, self.grids, self.allowed)
        if not self.with_curve or len(self.grids) > 1:
            return Choice(points)

        by_cutoff: list[Point] = []
        for cutoff in self.grids[0].cutoffs:
            by_cutoff += best_points(even, self.grids, [(cutoff,)])
        return Choice(points, by_cutoff)


@dataclass(frozen=True)
class Grid(WeightPolicy):
    """One number for all contexts, chosen by the likelihood of the tuning split.

    Every point of the readings' joint grid is tried, up to TRIED_TOGETHER of them; beyond, one
    reading is tuned at a time.
    """

    passes: ClassVar[tuple[Pass, ...]] = (TUNE,)

    def observe(self, step: str, block: ScoredRange) -> Arrays:
        """Sums over the grid; or, for readings in turn, log-sums of every token that counts."""
        if self.tries_all:
            return {"nll": self._nll(block)}

        # For each reading, the log-sums of the parts of the range.
        by_reading: list[list[LogSums]] = [[] for _ in self.grids]
        for _, retrieved in self.row.retrieve(block):
            for parts, entries, grid in zip(by_reading, retrieved, self.grids, strict=True):
                parts.append(entries.log_sums(grid.scales, grid.cutoffs))
        # A range none of whose tokens count has no parts.
        log_sums = [_joined(parts) for parts in by_reading if parts]

        counted = block.counted_rows
        log_p = block.lm.log_p[counted]
        log_z = block.lm.log_z[counted]
        return arrays_of((log_p, log_z, log_sums))

    def _nll(self, block: ScoredRange) -> np.ndarray:
        """Summed nats of a range at every point of the joint grid; see `grid_nll`."""
        nll = _no_nll(self.grids)
        for rows, retrieved in self.row.retrieve(block):
            log_p = block.lm.log_p[rows]
            log_z = block.lm.log_z[rows]
            nll += grid_nll(log_p, log_z, retrieved, self.grids)
        return nll

    def choose(self, step: str, observed: Iterable[Arrays]) -> Record:
        return self._choice(observed).record(self.grids)

    @property
    def candidates(self) -> list[Point]:
        """All points of a lone reading that may be chosen; none for several readings."""
        if len(self.grids) > 1:
            return []
        grid = self.grids[0]
        settings = product(grid.scales, self.allowed[0], grid.tried)
        return [Point(cutoff, scale, weight) for scale, cutoff, weight in settings]

    def at(self, candidate: Point) -> Self:
        return self.after(TUNE.name, Choice((candidate,)).record(self.grids))

    def settle(self, candidate: Point, observed: Iterable[Arrays]) -> Record:
        return self._choice(observed, candidate).record(self.grids)

    def scratch_bytes(self, tokens: int) -> int:
        return 0 if self.tries_all else sums_bytes(self.grids, tokens)

    @property
    def tries_all(self) -> bool:
        """Whether every point of the joint grid is tried; else readings are tuned in turn.

        The weight that switches a memory off does not count: it is tried in addition to the grid.
        """
        num_points = 1
        for grid in self.grids:
            num_points *= len(grid.scales) * len(grid.cutoffs) * len(grid.weights)
        return len(self.grids) == 1 or num_points <= TRIED_TOGETHER

    @cached_property
    def chosen(self) -> Choice:
        return Choice.of_record(self.choices[TUNE.name], self.grids)

    def _choice(self, observed: Iterable[Arrays], settled: Point | None = None) -> Choice:
        """The best points, if none is settled; a lone reading also gets the best one for every
        cut-off.
        """
        assert settled is None or self.tries_all, "a lone reading tries all"
        if not self.tries_all:
            # The observations are read again for each step.
            points, trace = coordinate_descent(
                lambda: map(sums_of, observed), self.grids, self.allowed
            )
            return Choice(points, best_nll=finite(trace[-1]))

        nll = np.sum([arrays["nll"] for arrays in observed], axis=0)
        points = (settled,) if settled else best_points(nll, self.grids, self.allowed)
        best_nll = finite(sum_at(nll, self.grids, points))
        if len(self.grids) > 1:
            return Choice(points, best_nll=best_nll)
        return self._lone_choice(nll, points[0], best_nll)

    def _lone_choice(self, nll: np.ndarray, point: Point, best: float | None) -> Choice:
        """The choice of a lone reading's point, with the best point of every other cut-off."""
        grid = self.grids[0]
        # A curve with memory switched off at some cut-offs would be misleading.
        shown = nll[:, :, self._shown_weights(point)]
        by_cutoff = []
        curve = []
        for cutoff in grid.cutoffs:
            other = point
            if cutoff != point.cutoff:
                (other,) = best_points(shown, self.grids, [(cutoff,)])
            by_cutoff.append(other)
            curve.append(finite(sum_at(nll, self.grids, [other])))

        sums = []
        for line in nll[:, grid.cutoffs.index(point.cutoff), :].tolist():
            sums.append([finite(value) for value in line])
        return Choice((point,), by_cutoff, sums, best, curve)

    def _shown_weights(self, point: Point) -> slice:
        """Indices of the weights that reports show; the weight that switches memory off is shown
        only if chosen.
        """
        grid = self.grids[0]
        return slice(None) if grid.is_off(point.weight) else slice(len(grid.weights))

    def describe_grid(self, tokens: int) -> dict[str, Any] | None:
        """Mean negative log-likelihood of a lone reading, nats per token of the tuning split,
        [scale][weight].

        Values are those at the best number of entries. None for several readings.
        """
        if self.chosen.nll is None:
            return None
        grid = self.grids[0]
        source = self.row.sources[0]
        point = self.chosen.points[0]
        shown = range(len(grid.tried))[self._shown_weights(point)]
        columns = sorted(shown, key=grid.tried.__getitem__)
        nll = []
        for sums in self.chosen.nll:
            nats = [sums[column] for column in columns]
            nll.append([None if total is None else total / tokens for total in nats])
        return {
            "row": self.row.name,
            "over": source.about.amount,
            "at": point.cutoff,
            "tokens": tokens,
            "scale_name": source.reading.scale_name,
            "scales": [grid.shown_scale(scale) for scale in grid.scales],
            "weight_name": source.reading.weight_name,
            "weights": [grid.tried[column] for column in columns],
            "nll": nll,
        }


def _no_nll(grids: Sequence[ReadingGrid]) -> np.ndarray:
    """Zeros at every point of the joint grid, in the axes of `grid_nll`."""
    shape: list[int] = []
    for grid in grids:
        shape += grid.shape
    return np.zeros(shape)


def grid_nll(
    log_p: Tensor, log_z: Tensor, retrieved: Sequence[Retrieved], grids: Sequence[ReadingGrid]
) -> np.ndarray:
    """Summed negative log-likelihood of n targets at every point of the grid, float64.

    Args:
        log_p, log_z: [n], of the model alone, in nats.
        retrieved: what each reading reads, in the order of reading.
        grids: of each reading.
    Returns: [S, C, G] for one reading, [S, C, G, S', C', G'] for two, and so on.

    The model gives the target 1/10; of two equally near entries the first holds it; λ = 1/2:

    >>> from stages.memory.entries import Entries
    >>> from stages.memory.readers import READERS
    >>> from stages.retrieval.scored_range import retrieve
    >>> memory = retrieve(Entries(torch.zeros(1, 2), torch.tensor([[5, 7]])), torch.tensor([5]))
    >>> grid = ReadingGrid(READERS.load("interpolate")(), scales=(1.0,), cutoffs=(1, 2), weights=(0.5,))
    >>> nll = grid_nll(torch.tensor([0.1]).log(), torch.zeros(1), [memory], [grid])
    >>> np.exp(-nll).round(3).tolist()  # 1/2 · 1/10 + 1/2 · 1, and 1/2 · 1/10 + 1/2 · 1/2
    [[[0.55], [0.3]]]
    """
    log_sums = []
    for memory, grid in zip(retrieved, grids, strict=True):
        log_sums.append(memory.log_sums(grid.scales, grid.cutoffs))
    return _sweep(log_p, log_z, log_sums, grids).cpu().numpy()


def _sweep(
    log_p: Tensor, log_z: Tensor, log_sums: Sequence[LogSums], grids: Sequence[ReadingGrid]
) -> Tensor:
    """Summed loss at every point, as `grid_nll` gives it: the first reading's loop is outermost."""
    grid = grids[0]
    later = grids[1:]
    sums = []
    for scale in range(len(grid.scales)):
        for cutoff in range(len(grid.cutoffs)):
            read = grid.read_tried(log_p, log_z, log_sums[0].at(scale, cutoff))
            if later:
                for log_p_read in read:
                    sums.append(_sweep(log_p_read, log_z, log_sums[1:], later))
            else:
                sums.append(-read.sum(-1, dtype=torch.float64))
    shape = [size for grid in grids for size in grid.shape]
    return torch.stack(sums).view(*shape)


def _joined(parts: Sequence[LogSums]) -> LogSums:
    """LogSums [S, C, …] of tokens that follow each other."""
    columns = {}
    for name in LOG_SUMS:
        columns[name] = torch.cat([getattr(part, name) for part in parts], -1)
    return LogSums(**columns)


# Coordinate descent, for readings whose joint grid is too large to try

MAX_ROUNDS = 10
CHUNK_TOKENS = 1 << 13
"""Tokens of a chunk: few enough to stay in the processor's cache for every weight of a grid."""

TuningSums = tuple[Tensor, Tensor, Sequence[LogSums]]
"""Log p and log Z of the model alone for n tokens, [n] each, and each reading's log-sums, [S, C,
n].
"""
Parts = Callable[[], Iterable[TuningSums]]
"""Reads the tuning split again, part by part; only one part is in memory at a time."""
LOG_SUMS = ("target", "total", "max_score")


def coordinate_descent(
    parts: Parts, grids: Sequence[ReadingGrid], allowed: Sequence[Sequence[int]]
) -> tuple[tuple[Point, ...], list[float]]:
    """Tune one reading at a time over its whole grid, with the others fixed, until none changes.

    The start is the best point of each reading, given those before it. A reading changes only to a
    strictly better point; of equally good points it takes the first. At the end no change of a
    single reading is an improvement. With a single minimum this is the joint optimum. One reading
    alone gets its best point.

    Args:
        parts: reads the tuning split.
        grids: the grid of each reading, in the order in which they are applied.
        allowed: the cut-offs that may be chosen for each reading.
    Returns: the point of each reading at the end, and the nats summed over the tuning split at the start and
    after each step.

    The model gives two tokens the probabilities 0.01 and 0.25. The first memory knows only the
    first token, the second memory knows both. Alone the first memory gets λ = 1/2: 0.505 · 0.125 is
    more than 0.901 · 0.025. Then the second gets 0.9. It covers the token that the first memory
    lacks, so the first moves to 0.9, too.

    >>> from stages.memory.readers.reader import Interpolate
    >>> def known(*p):
    ...     return LogSums(torch.tensor([[p]]).log(), torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    >>> part = torch.tensor([0.01, 0.25]).log(), torch.zeros(2), [known(1.0, 0.0), known(1.0, 1.0)]
    >>> grid = ReadingGrid(Interpolate(), scales=(1.0,), cutoffs=(1,), weights=(0.0, 0.5, 0.9))
    >>> best, nll = coordinate_descent(lambda: [part], [grid, grid], [(1,), (1,)])
    >>> [point.weight for point in best]
    [0.9, 0.9]
    >>> torch.tensor(nll).neg().exp()  # 0.9505 · 0.9125, then 0.9901 · 0.9025
    tensor([0.8673, 0.8936])
    """
    points: list[Point] = []
    for number, grid in enumerate(grids):
        sums = _sweep_one(parts, grids[: number + 1], points, number)
        points += best_points(sums, [grid], [allowed[number]])
    trace = [sum_at(sums, grids[-1:], points[-1:])]

    # Readings are visited in turn; the last one has just been given its best point.
    num_unchanged = 1
    for number in islice(cycle(range(len(grids))), MAX_ROUNDS * len(grids)):
        if num_unchanged == len(grids):
            break
        grid = grids[number]
        sums = _sweep_one(parts, grids, points, number)
        best = best_points(sums, [grid], [allowed[number]])
        nll = sum_at(sums, [grid], best)
        # Only a strictly better point counts: equal points would alternate for ever.
        if nll < sum_at(sums, [grid], [points[number]]):
            points[number] = best[0]
            trace.append(nll)
            num_unchanged = 1
        else:
            num_unchanged += 1
    return tuple(points), trace


def _sweep_one(
    parts: Parts, grids: Sequence[ReadingGrid], points: Sequence[Point], number: int
) -> np.ndarray:
    """Summed nats at every point of one reading's grid, with the others fixed; float64 [S, C, G]."""
    # At the start, readings behind this one have no points yet, and are not read.
    indices = [grid.index_of(point) for grid, point in zip(grids, points, strict=False)]
    total = np.zeros(grids[number].shape)
    for log_p, log_z, log_sums in parts():
        for start in range(0, len(log_p), CHUNK_TOKENS):
            chunk = slice(start, start + CHUNK_TOKENS)
            sums_of_chunk = [_cut(sums, chunk) for sums in log_sums]
            part = (log_p[chunk], log_z[chunk], sums_of_chunk)
            total += _sweep_part(part, grids, indices, number)
    return total


def _cut(log_sums: LogSums, chunk: slice) -> LogSums:
    """LogSums [S, C, …] of some of the tokens."""
    return LogSums(
        log_sums.target[..., chunk], log_sums.total[..., chunk], log_sums.max_score[..., chunk]
    )


def _sweep_part(
    part: TuningSums, grids: Sequence[ReadingGrid], indices: Sequence[GridIndex], number: int
) -> np.ndarray:
    """Summed nats of a part of the split, as `_sweep_one` gives them."""
    log_p, log_z, log_sums = part
    grid = grids[number]
    readings = list(zip(grids, log_sums, indices, strict=False))

    # Readings before this one are the same at all its points, so they are read once.
    for reading in readings[:number]:
        log_p = _read(log_p, log_z, *reading)

    nll = np.zeros(grid.shape)
    for scale, cutoff in np.ndindex(*grid.shape[:2]):
        memory = log_sums[number].at(scale, cutoff)
        log_p_tried = grid.read_tried(log_p, log_z, memory)  # [G, n]
        for reading in readings[number + 1 :]:
            log_p_tried = _read(log_p_tried, log_z, *reading)
        nll[scale, cutoff] = -log_p_tried.sum(-1, dtype=torch.float64).cpu().numpy()
    return nll


def _read(
    log_p: Tensor, log_z: Tensor, grid: ReadingGrid, log_sums: LogSums, index: GridIndex
) -> Tensor:
    """log p [..., n] after one more reading, at a point of its grid."""
    memory = log_sums.at(index.scale, index.cutoff)
    return grid.reader.read(log_p, log_z, memory, grid.tried[index.weight])


def sums_bytes(grids: Sequence[ReadingGrid], tokens: int) -> int:
    """Bytes of the `TuningSums` of `tokens` tokens in float32."""
    num_cells = sum(len(grid.scales) * len(grid.cutoffs) for grid in grids)
    # Besides these, log p and log Z.
    numbers_per_token = 2 + len(LOG_SUMS) * num_cells
    return 4 * tokens * numbers_per_token


def arrays_of(sums: TuningSums) -> dict[str, np.ndarray]:
    """A part of the tuning split as float32 arrays, for `sums_of`."""
    log_p, log_z, log_sums = sums
    tensors = {"log_p": log_p, "log_z": log_z}
    for number, reading_sums in enumerate(log_sums):
        for name, tensor in vars(reading_sums).items():
            tensors[f"{name}-{number}"] = tensor
    return {name: tensor.float().cpu().numpy() for name, tensor in tensors.items()}


def sums_of(arrays: Mapping[str, np.ndarray]) -> TuningSums:
    """A part of the tuning split, on the CPU, from the arrays that `arrays_of` returned."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    log_p = tensors.pop("log_p")
    log_z = tensors.pop("log_z")
    log_sums = []
    for number in range(len(tensors) // len(LOG_SUMS)):
        columns = {name: tensors[f"{name}-{number}"] for name in LOG_SUMS}
        log_sums.append(LogSums(**columns))
    return log_p, log_z, log_sums
