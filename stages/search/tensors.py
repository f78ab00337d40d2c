"""Search on a device other than the CPU, in PyTorch: shared kernels, and the copying of results to
the host.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from math import isqrt
from types import TracebackType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.search.ranking import MISSING, NO_ROW

RESERVED = 1 << 30
"""Bytes of a GPU reserved for queries and their candidates. The limits below are shares of the
rest.
"""
SCORES = 3 << 27
"""Rough scores at a time: 1.6 GB, or an eighth of a GPU's free memory. Kernels count bytes in 32
bits.
"""
NUMBERS = 1 << 27
"""Elements of keys that are compared pair by pair at a time: 512 MB in float32, or a 64th of the
free memory.
"""
PIECE_NUMBERS = 1 << 28
"""Elements of keys in one product: 1 GB in float32, or a 32nd of the free memory."""
RESIDENT_SHARE = 0.5
ROOM = 24 << 30
"""Keys may take this share of a GPU's free memory. If it is more, they may take all but ROOM bytes.

The rest of a search needs a fixed amount of memory, whatever the GPU.
"""
RESIDENT_ELSEWHERE = 128 << 20
"""Bytes of keys that stay on a device that is no GPU."""
FEWEST_OF_A_GROUP = 3
"""Smallest group of columns for which it pays to compute the minimum first."""


class TensorKeys(NamedTuple):
    """Keys on a device: their rows, int64 [m], `NO_ROW` for padding, and the keys in their stored
    dtype, [m, d].
    """

    rows: Tensor
    vectors: Tensor

    def between(self, start: int, stop: int) -> "TensorKeys":
        return TensorKeys(self.rows[start:stop], self.vectors[start:stop])


class MemoryBudget(NamedTuple):
    """Memory budget of a device.

    Attributes:
        resident: bytes of keys that stay on the device.
        scores: rough scores at a time.
        numbers: elements of keys that are compared pair by pair at a time.
        piece: elements of keys in one product. Memory holds two pieces at once.
    """

    resident: int
    scores: int
    numbers: int
    piece: int


def resident_bytes(free: int) -> int:
    """Bytes of a GPU's free memory that keys may stay in.

    >>> resident_bytes(16 << 30) >> 30, resident_bytes(140 << 30) >> 30
    (8, 116)
    """
    return max(int(RESIDENT_SHARE * free), free - ROOM)


def memory_budget(device: str) -> MemoryBudget:
    """Budget of a search on a device, from the memory that is free now."""
    if torch.device(device).type != "cuda":
        return MemoryBudget(RESIDENT_ELSEWHERE, SCORES, NUMBERS, PIECE_NUMBERS)

    free, _ = torch.cuda.mem_get_info(device)
    # a quarter, at least, where the reserve would leave next to nothing
    free = max(free // 4, free - RESERVED)
    return MemoryBudget(
        resident=resident_bytes(free),
        scores=min(SCORES, free // 32),
        numbers=min(NUMBERS, free // 256),
        piece=min(PIECE_NUMBERS, free // 128),
    )


def moved(array: np.ndarray, device: str) -> Tensor:
    """Copy an array to a device."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def rows_at(table: Tensor, places: Tensor) -> Tensor:
    """Rows of a table [m, d] at any places: [*places, d]; several times faster than indexing."""
    return table.index_select(0, places.flatten()).unflatten(0, places.shape)


def smallest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The smallest of each row of scores [q, m], in any order: scores [q, c] and their columns, c =
    min(count, m).

    Columns are divided into groups of g; every w-th column is in the same group. The `count` groups
    with the smallest minima contain the `count` smallest scores, so only their scores are ranked.
    That takes m / g minima and then g * count scores. Their sum is smallest for g = sqrt(m /
    count).

    >>> smallest(torch.tensor([[5.0, 1.0, 3.0]]), 2)[1].sort().values.tolist()
    [[1, 2]]
    """
    num_queries, num_columns = scores.shape
    device = scores.device
    if count >= num_columns:
        all_columns = torch.arange(num_columns, device=device)
        return scores, all_columns.expand(num_queries, num_columns)

    group_size = isqrt(num_columns // count)
    if group_size < FEWEST_OF_A_GROUP:
        best = scores.topk(count, dim=1, largest=False, sorted=False)
        return best.values, best.indices

    # [q, group_size, num_groups]: column i is in group i % num_groups, except for the last few
    num_groups = num_columns // group_size
    num_grouped = group_size * num_groups
    minima = scores[:, :num_grouped].unflatten(1, (group_size, num_groups)).amin(dim=1)
    best_groups = minima.topk(count, dim=1, largest=False, sorted=False).indices

    # the columns of the best groups, [q, group_size * count], and those beyond the last whole group
    offsets = num_groups * torch.arange(group_size, device=device)
    columns = best_groups[:, None, :] + offsets[:, None]
    remainder = torch.arange(num_grouped, num_columns, device=device)
    columns = torch.cat((columns.flatten(1), remainder.expand(num_queries, -1)), dim=1)

    candidates = scores.gather(1, columns)
    best = candidates.topk(count, dim=1, largest=False, sorted=False)
    return best.values, columns.gather(1, best.indices)


def packed(scores: Tensor, rows: Tensor) -> Tensor:
    """Pack like `ranking.packed`; nan counts as missing, since on the CPU it is beyond every bound."""
    bits = (scores + 0.0).view(torch.int32)
    mask = (bits >> 31) & 0x7FFFFFFF
    both = (bits ^ mask).long() << 32 | rows
    # a comparison with nan is False
    is_missing = ~(scores < torch.inf)
    return both.masked_fill_(is_missing, MISSING)


def scores_of(pairs: Tensor) -> Tensor:
    """Scores of pairs from `packed`."""
    bits = (pairs >> 32).int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)


def rows_of(pairs: Tensor, rows: int) -> Tensor:
    """Rows of pairs from `packed`, -1 where missing: int32, or int64 if there are too many `rows`
    for it.

    >>> rows_of(packed(torch.tensor([0.5, torch.inf]), torch.tensor([8, 3])), rows=9).tolist()
    [8, -1]
    """
    if rows < 1 << 31:
        return pairs.int()  # the lower 32 bits, which are -1 for a missing row
    wide = pairs & NO_ROW
    return wide.masked_fill_(wide == NO_ROW, -1)


THREADS = 4
UNDER_WAY = 8
"""Host threads that copy results; most parts of the result that are copied at the same time."""


class AsyncResults:
    """Scores float32 and rows int64 [n, k] of n queries, copied while the device works.

    A GPU writes to pinned memory in a stream of its own, and threads copy from there. PyTorch
    reuses pinned memory.

    Args:
        rows: number of rows in the datastore.
    """

    def __init__(self, n: int, k: int, rows: int, device: str) -> None:
        self.scores = np.empty((n, k), np.float32)
        self.rows = np.empty((n, k), np.int64)
        self._all_rows = rows
        self._under_way = deque[Future[None]]()
        self._pool = ThreadPoolExecutor(THREADS)

        torch_device = torch.device(device)
        is_gpu = torch_device.type == "cuda"
        self._stream = torch.cuda.Stream(torch_device) if is_gpu else None

    def __enter__(self) -> "AsyncResults":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._pool.shutdown()

    def put(self, which: slice, pairs: Tensor, among: np.ndarray | None = None) -> None:
        """Start copying the result of some queries, or of those `among` others, `packed`, best
        first, [q, k].
        """
        places = which if among is None else among[which]
        scores = scores_of(pairs)
        rows = rows_of(pairs, self._all_rows)
        if self._stream is None:
            self._keep(places, scores, rows)
            return

        # the copy must start after the scores are computed, and must not delay the next ones
        self._stream.wait_stream(torch.cuda.current_stream(pairs.device))
        with torch.cuda.stream(self._stream):
            host_scores = _on_its_way(scores)
            host_rows = _on_its_way(rows)
            arrived = self._stream.record_event()
        # otherwise PyTorch would reuse this memory while it is copied
        scores.record_stream(self._stream)
        rows.record_stream(self._stream)
        copying = self._pool.submit(self._keep, places, host_scores, host_rows, arrived)
        self._under_way.append(copying)
        self.wait(UNDER_WAY)

    def wait(self, max_parts: int = 0) -> None:
        """Wait until at most `max_parts` parts are still being copied."""
        while len(self._under_way) > max_parts:
            self._under_way.popleft().result()

    def _keep(
        self,
        which: slice | np.ndarray,
        scores: Tensor,
        rows: Tensor,
        arrived: torch.cuda.Event | None = None,
    ) -> None:
        if arrived is not None:
            arrived.synchronize()
        self.scores[which] = scores.numpy()
        self.rows[which] = rows.numpy()


def _on_its_way(tensor: Tensor) -> Tensor:
    """A pinned copy of a GPU's tensor, valid once the stream has reached this point."""
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
