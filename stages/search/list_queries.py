"""Queries sorted by the lists that they probe."""

import numpy as np
from jaxtyping import Int64

from stages.search.runs import runs
from stages.threads import ThreadPool

QUERIES = 2048
"""Whose lists a thread sorts at a time."""


def some_queries(count: int) -> list[slice]:
    """All of so many queries, as threads share them."""
    return [slice(first, min(first + QUERIES, count)) for first in range(0, count, QUERIES)]


class ListQueries:
    """The pairs (query times probe plus place) that probe each list.

    Args:
        nearest: [n, probe] numbers of lists; -1: none.
        lists: how many there are.

    Attributes:
        counts: [lists] pairs of each, int64.
    """

    def __init__(self, nearest: Int64[np.ndarray, "n probe"], lists: int, pool: ThreadPool) -> None:
        parts = some_queries(len(nearest))
        self._pairs = np.empty(nearest.size, np.int64)
        self._limits = np.zeros((len(parts), lists + 1), np.int64)

        def sort(number: int) -> None:
            own, first = nearest[parts[number]], parts[number].start * nearest.shape[1]
            visited = np.where(own < 0, lists, own).ravel().astype(np.uint16 if lists < 1 << 16 else np.int32)
            order = np.argsort(visited, kind="stable")
            self._limits[number] = np.searchsorted(visited, np.arange(lists + 1), sorter=order) + first
            np.add(order, first, out=self._pairs[first : first + own.size])

        pool(sort, range(len(parts)))
        self.counts: np.ndarray = np.diff(self._limits, axis=1).sum(axis=0)

    def of(self, numbers: list[int]) -> Int64[np.ndarray, " pairs"]:
        """The pairs that probe some lists, list after list."""
        starts, ends = self._limits[:, numbers], self._limits[:, np.add(numbers, 1)]
        return self._pairs.take(runs(starts.T.ravel(), (ends - starts).T.ravel()))
