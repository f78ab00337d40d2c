"""Tokens of a split in long stretches: a stored chunk is read once, not once a batch."""

from typing import Any

import numpy as np

READ_AHEAD_IDS = 1 << 20
"""Ids taken from storage at a time."""


class ReadAhead:
    """Reads a split's ids before `limit`, as int64."""

    def __init__(self, ids: Any, limit: int) -> None:
        self._ids, self._limit = ids, limit
        self._first = 0
        self._held = np.empty(0, np.int64)

    def __call__(self, start: int, stop: int) -> np.ndarray:
        """x_start … x_{stop-1}."""
        if start < self._first or stop > self._first + len(self._held):
            ahead = max(stop, min(start + READ_AHEAD_IDS, self._limit))
            self._first, self._held = start, np.asarray(self._ids[start:ahead]).astype(np.int64)
        return self._held[start - self._first : stop - self._first]
