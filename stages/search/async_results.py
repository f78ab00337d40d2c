"""Results that a device finds for some queries at a time, brought to memory while it goes on."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from stages.search.tensors import rows_of, scores_of

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
        self._stream.wait_stream(torch.cuda.current_stream(pairs.device))
        with torch.cuda.stream(self._stream):
            scores, rows = map(_on_its_way, found)
            arrived = self._stream.record_event()
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
