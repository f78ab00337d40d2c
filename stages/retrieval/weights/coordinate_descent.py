"""Tuning of several readings whose grids together are too large to try: one reading's grid at a time.

Shapes: n tokens; S scales, C cut-offs and G weights of a reading's grid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.retrieval.grids import Best, ReadingGrid, best_point

MAX_ROUNDS = 10
CHUNK_TOKENS = 1 << 13
"""Tokens read at a time: few enough to stay near the processor at every weight of a grid."""

TuningSums = tuple[Tensor, Tensor, Sequence[LogSums]]
"""Log p and log Z of the model alone for n tokens, [n] each, and each reading's log-sums, [S, C, n]."""
Parts = Callable[[], Iterable[TuningSums]]
"""Reads the tuning split once more, part by part, so that one part is in memory."""
LOG_SUMS = ("target", "total", "max_score")
Index = tuple[int, ...]
"""Scale, cut-off and weight of a reading, as indices into its grid."""


class DescentResult(NamedTuple):
    """Where the descent ended, and the summed nats of the split at its start and after every step."""

    best: Best
    nll: list[float]


def coordinate_descent(parts: Parts, grids: Sequence[ReadingGrid], allowed: Sequence[Sequence[int]]) -> DescentResult:
    """Tune readings in turn, each over its whole grid with the others held, until none moves.

    The start is each reading's best on top of those before it. A reading moves to the first of its
    best points, and only if that is better than where it stands. The end is no worse than any
    change of one reading; the best of all points it is where the sums have one valley. One reading
    alone gets its best point.

    Args:
        parts: of the tuning split.
        grids: of each reading, in the order of reading.
        allowed: for each reading, the cut-offs that may be chosen.

    Two tokens, of which the model gives 0.01 and 0.25. The first memory knows only the one, the second both. Alone
    the first gets λ = 1/2: 0.505 · 0.125 is more than 0.901 · 0.025. Then the second gets 0.9, and now that it
    stands in for the token that the first lacks, the first moves to 0.9 too.

    >>> from stages.memory.readers.reader import Interpolate
    >>> def known(*p):
    ...     return LogSums(torch.tensor([[p]]).log(), torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    >>> part = torch.tensor([0.01, 0.25]).log(), torch.zeros(2), [known(1.0, 0.0), known(1.0, 1.0)]
    >>> grid = ReadingGrid(Interpolate(), scales=(1.0,), cutoffs=(1,), weights=(0.0, 0.5, 0.9))
    >>> best, nll = coordinate_descent(lambda: [part], [grid, grid], [(1,), (1,)])
    >>> [point.weight for point in best.points]
    [0.9, 0.9]
    >>> torch.tensor(nll).neg().exp()  # 0.9505 · 0.9125, then 0.9901 · 0.9025
    tensor([0.8673, 0.8936])
    """
    found: list[Best] = []
    for number in range(len(grids)):
        sums = _sweep(parts, grids[: number + 1], [best.indices for best in found], number)
        found.append(best_point(sums, [grids[number]], [allowed[number]]))
    trace, standing = [float(sums[found[-1].indices])], 1
    for number in islice(cycle(range(len(grids))), MAX_ROUNDS * len(grids)):
        if standing == len(grids):
            break
        sums = _sweep(parts, grids, [best.indices for best in found], number)
        best = best_point(sums, [grids[number]], [allowed[number]])
        # only what is better moves a reading, so equal points cannot chase each other
        if sums[best.indices] < sums[found[number].indices]:
            found[number], standing = best, 1
            trace.append(float(sums[best.indices]))
        else:
            standing += 1
    return DescentResult(_together(found), trace)


def _together(found: Sequence[Best]) -> Best:
    """Join the best points of each reading into one point of the product of their grids."""
    points, interior, indices = zip(*found, strict=True)
    return Best(sum(points, ()), sum(interior, ()), sum(indices, ()))


def _sweep(parts: Parts, grids: Sequence[ReadingGrid], indices: Sequence[Index], number: int) -> np.ndarray:
    """Summed nats [S, C, G] over the grid of one reading, float64, the others held."""
    total = np.zeros(grids[number].shape)
    for log_p, log_z, log_sums in parts():
        for start in range(0, len(log_p), CHUNK_TOKENS):
            chunk = slice(start, start + CHUNK_TOKENS)
            part = log_p[chunk], log_z[chunk], [_cut(one, chunk) for one in log_sums]
            total += _sweep_part(part, grids, indices, number)
    return total


def _cut(log_sums: LogSums, chunk: slice) -> LogSums:
    return LogSums(log_sums.target[..., chunk], log_sums.total[..., chunk], log_sums.max_score[..., chunk])


def _sweep_part(part: TuningSums, grids: Sequence[ReadingGrid], indices: Sequence[Index], number: int) -> np.ndarray:
    log_p, log_z, log_sums = part
    grid, sums = grids[number], np.zeros(grids[number].shape)
    others = list(zip(grids, log_sums, indices, strict=False))
    for other in others[:number]:
        log_p = _read(log_p, log_z, *other)
    for scale, cutoff in np.ndindex(*grid.shape[:2]):
        read = grid.read_tried(log_p, log_z, log_sums[number].at(scale, cutoff))
        for other in others[number + 1 :]:
            read = _read(read, log_z, *other)
        sums[scale, cutoff] = -read.sum(-1, dtype=torch.float64).cpu().numpy()
    return sums


def _read(log_p: Tensor, log_z: Tensor, grid: ReadingGrid, log_sums: LogSums, index: Index) -> Tensor:
    """log p [..., n] with one more memory read, at an index of its grid."""
    scale, cutoff, weight = index
    return grid.reader.read(log_p, log_z, log_sums.at(scale, cutoff), grid.tried[weight])


def sums_bytes(grids: Sequence[ReadingGrid], tokens: int) -> int:
    """Size of `TuningSums` of this many tokens, float32."""
    log_sums = sum(len(LOG_SUMS) * len(grid.scales) * len(grid.cutoffs) for grid in grids)
    return 4 * tokens * (2 + log_sums)


def arrays_of(sums: TuningSums) -> dict[str, np.ndarray]:
    """A part of the tuning split as float32 arrays, for `sums_of`."""
    log_p, log_z, log_sums = sums
    tensors = {"log_p": log_p, "log_z": log_z}
    for number, one in enumerate(log_sums):
        tensors |= {f"{name}-{number}": getattr(one, name) for name in LOG_SUMS}
    return {name: tensor.float().cpu().numpy() for name, tensor in tensors.items()}


def sums_of(arrays: Mapping[str, np.ndarray]) -> TuningSums:
    """The part whose arrays `arrays_of` made, on the CPU."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    log_p, log_z = tensors.pop("log_p"), tensors.pop("log_z")
    readings = range(len(tensors) // len(LOG_SUMS))
    return log_p, log_z, [LogSums(*(tensors[f"{name}-{number}"] for name in LOG_SUMS)) for number in readings]
