"""Search on another device than the CPU, in PyTorch: what its kernels share, and how results come to memory."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from math import isqrt
from types import TracebackType
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
HELD_SHARE, ROOM = 0.5, 24 << 30
"""Share of a GPU's free memory that keys may stay in; where that is more, all of it but so many bytes.

The rest of what a search takes does not grow with the GPU.
"""
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


def held_bytes(free: int) -> int:
    """Bytes of a GPU's free memory that keys may stay in.

    >>> held_bytes(16 << 30) >> 30, held_bytes(140 << 30) >> 30
    (8, 116)
    """
    return max(int(HELD_SHARE * free), free - ROOM)


def memory_budget(device: str) -> MemoryBudget:
    if torch.device(device).type != "cuda":
        return MemoryBudget(HELD_ELSEWHERE, SCORES, NUMBERS, PIECE_NUMBERS)
    free = torch.cuda.mem_get_info(device)[0]
    free = max(free // 4, free - BESIDE)
    numbers, piece = min(NUMBERS, free // 256), min(PIECE_NUMBERS, free // 128)
    return MemoryBudget(held_bytes(free), min(SCORES, free // 32), numbers, piece)


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

    >>> smallest(torch.tensor([[5.0, 1.0, 3.0]]), 2)[1].sort().values.tolist()
    [[1, 2]]
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
    """Rows of what `packed` made, -1 where missing: int32, or int64 where there are more `rows` than that tells.

    >>> rows_of(packed(torch.tensor([0.5, torch.inf]), torch.tensor([8, 3])), rows=9).tolist()
    [8, -1]
    """
    if rows < 1 << 31:
        return pairs.int()  # the lower half; that of a missing one is -1
    wide = pairs & NO_ROW
    return wide.masked_fill_(wide == NO_ROW, -1)


THREADS, UNDER_WAY = 4, 8
"""Host threads that copy results; parts of the result that may be under way."""


class AsyncResults:
    """Scores float32 and rows int64 [n, k] of n queries.

    A GPU writes to pages that cannot move, of which PyTorch keeps those that were used before, in a stream of its own;
    threads copy from there.

    Args:
        rows: of the datastore.
    """

    def __init__(self, n: int, k: int, rows: int, device: str) -> None:
        self.scores, self.rows = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
        self._all_rows, self._under_way = rows, deque[Future[None]]()
        on = torch.device(device)
        self._stream = torch.cuda.Stream(on) if on.type == "cuda" else None
        self._pool = ThreadPoolExecutor(THREADS)

    def __enter__(self) -> "AsyncResults":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown()

    def put(self, which: slice | np.ndarray, pairs: Tensor) -> None:
        """Take the result of some queries, `packed`, best first, [q, k]."""
        found = scores_of(pairs), rows_of(pairs, self._all_rows)
        if self._stream is None:
            self._keep(which, *found)
            return
        # the copy must not begin before the scores are computed, nor hold up what computes the next
        self._stream.wait_stream(torch.cuda.current_stream(pairs.device))
        with torch.cuda.stream(self._stream):
            scores, rows = map(_on_its_way, found)
            arrived = self._stream.record_event()
        # else PyTorch would hand this memory out again while it is copied
        for one in found:
            one.record_stream(self._stream)
        self._under_way.append(self._pool.submit(self._keep, which, scores, rows, arrived))
        self.wait(UNDER_WAY)

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many parts are on their way."""
        while len(self._under_way) > most:
            self._under_way.popleft().result()

    def _keep(
        self, which: slice | np.ndarray, scores: Tensor, rows: Tensor, arrived: torch.cuda.Event | None = None
    ) -> None:
        if arrived is not None:
            arrived.synchronize()
        self.scores[which], self.rows[which] = scores.numpy(), rows.numpy()


def _on_its_way(tensor: Tensor) -> Tensor:
    """A tensor of a GPU in memory, once what is asked of the stream is done."""
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
