"""Search on another device than the CPU, in PyTorch: what its kernels share."""

from math import isqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.search.ranking import MISSING, NO_ROW

BESIDE = 1 << 30
"""Bytes of a GPU that queries and their candidates take, however much is free: what follows is of the rest."""
SCORES = 3 << 27
"""Rough scores at a time: 1.6 GB, or an eighth of what memory of a GPU is free. Kernels count bytes in 32 bits."""
NUMBERS = 1 << 27
"""Numbers of keys that are compared pair by pair at a time: 512 MB in float32, or a 64th of what memory is free."""
PIECE_NUMBERS = 1 << 28
"""Numbers of keys that one product takes: 1 GB in float32, or a 32nd of what memory is free."""
HELD_SHARE = 0.5
"""Share of a GPU's free memory that keys may stay in."""
HELD_ELSEWHERE = 128 << 20
"""Bytes of keys that stay where no GPU tells what is free."""
FEWEST_OF_A_GROUP = 3
"""Columns that are worth a look at the smallest of them first."""


class TensorKeys(NamedTuple):
    """Keys on a device: their rows, int64 [m], `NO_ROW` of none, and the keys as they are stored, [m, d]."""

    rows: Tensor
    vectors: Tensor

    def between(self, start: int, stop: int) -> "TensorKeys":
        return TensorKeys(self.rows[start:stop], self.vectors[start:stop])


class MemoryBudget(NamedTuple):
    """Memory budget of a device.

    Attributes:
        held: bytes of keys that stay.
        scores: at a time.
        numbers: of keys that are compared pair by pair at a time.
        piece: numbers of keys that one product takes. Two pieces are there at once.
    """

    held: int
    scores: int
    numbers: int
    piece: int


def memory_budget(device: str) -> MemoryBudget:
    if torch.device(device).type != "cuda":
        return MemoryBudget(HELD_ELSEWHERE, SCORES, NUMBERS, PIECE_NUMBERS)
    free = torch.cuda.mem_get_info(device)[0]
    free = max(free // 4, free - BESIDE)
    numbers, piece = min(NUMBERS, free // 256), min(PIECE_NUMBERS, free // 128)
    return MemoryBudget(int(HELD_SHARE * free), min(SCORES, free // 32), numbers, piece)


def moved(array: np.ndarray, device: str) -> Tensor:
    """An array on a device."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def rows_at(table: Tensor, places: Tensor) -> Tensor:
    """Rows of a table [m, d] at any places: [*places, d]; several times as fast as an index of one dimension."""
    return table.index_select(0, places.flatten()).unflatten(0, places.shape)


def smallest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The smallest of each row of scores [q, m], in any order: scores [q, c] and their columns, c = min(count, m).

    Columns are put into groups, every w-th in one. `count` groups of the smallest minima hold so many scores that are
    no larger than any outside, so that these alone are ranked: m / g minima, then g * count scores, fewest of all for
    g = sqrt(m / count).
    """
    queries, keys = scores.shape
    if count >= keys:
        return scores, torch.arange(keys, device=scores.device).expand(queries, keys)
    group = isqrt(keys // count)
    if group < FEWEST_OF_A_GROUP:
        found = scores.topk(count, dim=1, largest=False, sorted=False)
        return found.values, found.indices
    width = keys // group
    minima = scores[:, : group * width].unflatten(1, (group, width)).amin(dim=1)
    best = minima.topk(count, dim=1, largest=False, sorted=False).indices
    columns = best[:, None, :] + width * torch.arange(group, device=scores.device)[:, None]
    rest = torch.arange(group * width, keys, device=scores.device)
    columns = torch.cat((columns.flatten(1), rest.expand(queries, -1)), dim=1)
    found = scores.gather(1, columns).topk(count, dim=1, largest=False, sorted=False)
    return found.values, columns.gather(1, found.indices)


def packed(scores: Tensor, rows: Tensor) -> Tensor:
    """Pack as `ranking.packed` does; a score that is not a number counts as missing, since no bound lets it pass
    there."""
    bits = (scores + 0.0).view(torch.int32)
    both = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32 | rows
    return both.masked_fill_(~(scores < torch.inf), MISSING)


def scores_of(pairs: Tensor) -> Tensor:
    """Scores of what `packed` made."""
    bits = (pairs >> 32).int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)


def rows_of(pairs: Tensor, rows: int) -> Tensor:
    """Rows of what `packed` made, -1 where missing: int32, or int64 where there are more `rows` than that tells."""
    if rows < 1 << 31:
        return pairs.int()  # the lower half; that of a missing one is -1
    wide = pairs & NO_ROW
    return wide.masked_fill_(wide == NO_ROW, -1)
