"""Pairs or scores of many queries, found in pieces: the smallest of each query."""

from collections.abc import Callable
from threading import Lock

import numpy as np
from jaxtyping import Float32, Int64, Integer, Shaped

from stages.search.ranking import MISSING, packed, unpacked
from stages.threads import ThreadPool


def runs(
    starts: Integer[np.ndarray, " m"], lengths: Integer[np.ndarray, " m"], step: int = 1
) -> Int64[np.ndarray, " total"]:
    """Runs of consecutive numbers, end to end, with these starts and lengths; step 0 repeats the start.

    >>> runs(np.array([5, 9]), np.array([3, 2])).tolist()
    [5, 6, 7, 9, 10]
    """
    some = lengths > 0
    starts, lengths = starts[some], lengths[some]
    ends = np.cumsum(lengths)
    out = np.full(int(ends[-1]) if len(ends) else 0, step, np.int64)
    if len(ends):
        out[0] = starts[0]
        out[ends[:-1]] = np.diff(starts) - step * (lengths[:-1] - 1)
    return np.cumsum(out)  # in place it would block other threads


TABLE_VALUES, TABLES = 1 << 18, 4
"""Values that a thread sorts at a time, 2 MB, and the number of tables that each thread should get."""


NO_PAIR = np.int64(MISSING)


class TooMany(Exception):
    """More values were found than the buffer holds."""


class TopKBuffer:
    """Values of n queries, of which the k smallest are wanted; they come in any order, and from several threads.

    Args:
        most: largest number of values.
        missing: the value where a query has fewer than k, in the dtype of values. By default they are `packed` pairs.

    Attributes:
        number: number of values in the buffer.
    """

    def __init__(self, queries: int, most: int, missing: np.generic = NO_PAIR) -> None:
        self.queries, self._missing, self._most = queries, missing, most
        # pages take memory only once they are written; `take` refuses an empty array
        self._values = np.empty(max(1, most), missing.dtype)
        self._adding = Lock()
        self._forget()

    def _forget(self) -> None:
        # each query begins with an empty run, which `smallest` fills up
        none = np.zeros(self.queries, np.int64)
        self.number, self._runs = 0, [(np.arange(self.queries), none, none)]

    def add(
        self, which: Int64[np.ndarray, " q"], counts: Int64[np.ndarray, " q"], values: Shaped[np.ndarray, " v"]
    ) -> None:
        """Add `counts` values for each of some queries, query after query. Raises: TooMany."""
        # only the position is shared: threads then write to separate values
        with self._adding:
            start = self.number
            if start + len(values) > self._most:
                raise TooMany
            self.number += len(values)
        self._values[start : start + len(values)] = values
        self._runs.append((which, counts, np.cumsum(counts) - counts + start))

    def smallest(self, k: int, pool: ThreadPool, use: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Call `use` with numbers of queries [q], and a table of the k smallest values of each in any order, [q, k]."""
        which, counts, starts = (np.concatenate(parts) for parts in zip(*self._runs, strict=True))
        totals = np.bincount(which, counts, self.queries).astype(np.int64)
        # NumPy sorts 16-bit numbers by radix sort, which is several times faster
        order = np.argsort(which.astype(np.uint16) if self.queries <= 1 << 16 else which, kind="stable")
        counts, starts, number = counts[order], starts[order], np.bincount(which, minlength=self.queries)
        firsts = np.cumsum(number) - number

        def rank(some: np.ndarray) -> None:
            own, width = runs(firsts[some], number[some]), max(k, int(totals[some].max()))
            pads, lengths = width - totals[some], counts[own]
            lengths[np.cumsum(number[some]) - number[some]] = pads
            table = self._values.take(runs(starts[own], lengths), mode="clip").reshape(len(some), width)
            table[np.arange(width) < pads[:, None]] = self._missing
            if width > k:
                table.partition(k - 1, axis=1)
            use(some, table[:, :k])

        pool(rank, _alike(totals, k, -(-self.queries // (TABLES * pool.threads))))

    def best(self, k: int, pool: ThreadPool) -> tuple[Float32[np.ndarray, "n {k}"], Int64[np.ndarray, "n {k}"]]:
        """The k best pairs of each query, best first: scores and rows, +inf and -1 where missing."""
        scores, rows = np.empty((self.queries, k), np.float32), np.empty((self.queries, k), np.int64)

        def sort(some: np.ndarray, table: np.ndarray) -> None:
            table.sort(axis=1)
            scores[some], rows[some] = unpacked(table)

        self.smallest(k, pool, sort)
        return scores, rows

    def keep_best(self, k: int, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """Keep only the k best pairs of each query; returns the k-th score, +inf if there are fewer."""
        scores, rows = self.best(k, pool)
        self._forget()
        self.add(np.arange(self.queries), np.full(self.queries, k), packed(scores, rows).ravel())
        return scores[:, -1]

    def kth(self, k: int, pool: ThreadPool) -> np.ndarray:
        """The k-th smallest value of each query, [n].

        The second smallest of two queries, one of which has a single score:

        >>> from stages.threads import in_turn
        >>> found = TopKBuffer(2, most=9, missing=np.float32(np.inf))
        >>> found.add(np.array([0, 1]), np.array([2, 1]), np.array([5, 3, 4], np.float32))
        >>> found.add(np.array([0]), np.array([1]), np.array([4], np.float32))
        >>> found.kth(2, in_turn).tolist()
        [4.0, inf]
        """
        out = np.empty(self.queries, self._missing.dtype)

        def put(some: np.ndarray, table: np.ndarray) -> None:
            out[some] = table.max(axis=1)

        self.smallest(k, pool, put)
        return out


def _alike(counts: np.ndarray, k: int, most: int) -> list[np.ndarray]:
    """All queries in groups with similar numbers of values; a table has at most `most` rows and TABLE_VALUES values."""
    order = np.argsort(counts, kind="stable")
    widths = np.maximum(counts[order], k)
    parts, stop = [], len(order)
    while stop:
        start = max(0, stop - max(1, min(most, TABLE_VALUES // int(widths[stop - 1]))))
        parts.append(order[start:stop])
        stop = start
    return parts
