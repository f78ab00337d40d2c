"""Coordinate descent: tunes several readings one at a time, because their joint grid is too large to try.

Shapes: n tokens; S scales, C cut-offs and G weights of a reading's grid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.retrieval.grids import Best, ReadingGrid, best_point

MAX_ROUNDS = 10
CHUNK_TOKENS = 1 << 13
"""Tokens of a chunk: few enough to stay in the processor's cache for every weight of a grid."""

TuningSums = tuple[Tensor, Tensor, Sequence[LogSums]]
"""Log p and log Z of the model alone for n tokens, [n] each, and each reading's log-sums, [S, C, n]."""
Parts = Callable[[], Iterable[TuningSums]]
"""Reads the tuning split again, part by part; only one part is in memory at a time."""
LOG_SUMS = ("target", "total", "max_score")
Index = tuple[int, ...]
"""Scale, cut-off and weight of a reading, as indices into its grid."""


def coordinate_descent(
    parts: Parts, grids: Sequence[ReadingGrid], allowed: Sequence[Sequence[int]]
) -> tuple[Best, list[float]]:
    """Tune one reading at a time over its whole grid, with the others fixed, until none changes.

    The start is the best point of each reading, given those before it. A reading changes only to a
    strictly better point; of equally good points it takes the first. At the end no change of a
    single reading is an improvement. With a single minimum this is the joint optimum. One reading
    alone gets its best point.

    Args:
        parts: reads the tuning split.
        grids: the grid of each reading, in the order in which they are applied.
        allowed: the cut-offs that may be chosen for each reading.
    Returns: the end point, and the nats summed over the tuning split at the start and after each step.

    The model gives two tokens the probabilities 0.01 and 0.25. The first memory knows only the first token, the second
    memory knows both. Alone the first memory gets λ = 1/2: 0.505 · 0.125 is more than 0.901 · 0.025. Then the second
    gets 0.9. It covers the token that the first memory lacks, so the first moves to 0.9, too.

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
    trace, unchanged = [float(sums[found[-1].indices])], 1
    for number in islice(cycle(range(len(grids))), MAX_ROUNDS * len(grids)):
        if unchanged == len(grids):
            break
        sums = _sweep(parts, grids, [best.indices for best in found], number)
        best = best_point(sums, [grids[number]], [allowed[number]])
        # Only a strictly better point counts: equal points would alternate for ever.
        if sums[best.indices] < sums[found[number].indices]:
            found[number], unchanged = best, 1
            trace.append(float(sums[best.indices]))
        else:
            unchanged += 1
    points, interior, indices = zip(*found, strict=True)
    return Best(sum(points, ()), sum(interior, ()), sum(indices, ())), trace


def _sweep(parts: Parts, grids: Sequence[ReadingGrid], indices: Sequence[Index], number: int) -> np.ndarray:
    """Summed nats at every point of one reading's grid, with the others fixed; float64 [S, C, G]."""
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
    """log p [..., n] after one more reading, at a point of its grid."""
    scale, cutoff, weight = index
    return grid.reader.read(log_p, log_z, log_sums.at(scale, cutoff), grid.tried[weight])


def sums_bytes(grids: Sequence[ReadingGrid], tokens: int) -> int:
    """Bytes of the `TuningSums` of `tokens` tokens in float32."""
    log_sums = sum(len(LOG_SUMS) * len(grid.scales) * len(grid.cutoffs) for grid in grids)
    return 4 * tokens * (2 + log_sums)


def arrays_of(sums: TuningSums) -> dict[str, np.ndarray]:
    """A part of the tuning split as float32 arrays, for `sums_of`."""
    log_p, log_z, log_sums = sums
    tensors = {f"{name}-{number}": tensor for number, one in enumerate(log_sums) for name, tensor in vars(one).items()}
    tensors |= {"log_p": log_p, "log_z": log_z}
    return {name: tensor.float().cpu().numpy() for name, tensor in tensors.items()}


def sums_of(arrays: Mapping[str, np.ndarray]) -> TuningSums:
    """A part of the tuning split, on the CPU, from the arrays that `arrays_of` returned."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    log_p, log_z = tensors.pop("log_p"), tensors.pop("log_z")
    readings = range(len(tensors) // len(LOG_SUMS))
    return log_p, log_z, [LogSums(*(tensors[f"{name}-{number}"] for name in LOG_SUMS)) for number in readings]
