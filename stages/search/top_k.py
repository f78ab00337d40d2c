"""Pairs and scores of many queries, found in pieces: the best of each query, or a bound on them."""

from threading import Lock

import numpy as np
from jaxtyping import Float32, Int64, Integer

from stages.search.ranking import MISSING, packed, unpacked
from stages.threads import ThreadPool, slices


def runs(
    starts: Integer[np.ndarray, " m"], lengths: Integer[np.ndarray, " m"], step: int = 1
) -> Int64[np.ndarray, " total"]:
    """Runs of consecutive numbers, end to end, with these starts and lengths; step 0 repeats the
    start.

    >>> runs(np.array([5, 9]), np.array([3, 2])).tolist()
    [5, 6, 7, 9, 10]
    """
    is_filled = lengths > 0
    starts = starts[is_filled]
    lengths = lengths[is_filled]
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)

    # steps from each number to the next; between two runs the step is a jump
    steps = np.full(int(ends[-1]), step, np.int64)
    steps[0] = starts[0]
    steps[ends[:-1]] = np.diff(starts) - step * (lengths[:-1] - 1)
    return np.cumsum(steps)  # in place it would block other threads


TABLE_PAIRS = 1 << 18
TABLES = 4
"""Pairs that a thread sorts at a time, 2 MB, and the number of tables that each thread should get.
"""


class TooMany(Exception):
    """More pairs were found than the buffer holds."""


class TopKBuffer:
    """Pairs of n queries, of which the k best are wanted; they come in any order, and from several
    threads.

    Args:
        max_pairs: largest number of pairs; None: any number, but only one thread may add them.

    Attributes:
        number: number of pairs in the buffer.
    """

    def __init__(self, queries: int, max_pairs: int | None = None) -> None:
        self.queries = queries
        self._max_pairs = max_pairs
        # pages take memory only once they are written; `take` refuses an empty array
        self._pairs = np.empty(max(1, max_pairs or 0), np.int64)
        self._adding = Lock()
        self._forget()

    def _forget(self) -> None:
        # each query begins with an empty run, which `best` fills up
        zeros = np.zeros(self.queries, np.int64)
        self.number = 0
        self._runs = [(np.arange(self.queries), zeros, zeros)]

    def add(
        self,
        which: Int64[np.ndarray, " q"],
        counts: Int64[np.ndarray, " q"],
        pairs: Int64[np.ndarray, " p"],
    ) -> None:
        """Add `counts` of `packed` pairs for each of some queries, query after query. Raises:
        TooMany.
        """
        # only the position is shared: threads then write to separate pairs
        with self._adding:
            start = self.number
            stop = start + len(pairs)
            if self._max_pairs is not None and stop > self._max_pairs:
                raise TooMany
            if stop > len(self._pairs):
                larger = np.empty(2 * stop, np.int64)
                larger[:start] = self._pairs[:start]
                self._pairs = larger
            self.number = stop
        self._pairs[start:stop] = pairs
        # a long scan finds pairs of few queries in most of its pieces; empty runs would fill the
        # memory
        filled = np.flatnonzero(counts)
        if len(filled):
            starts = np.cumsum(counts) - counts + start
            self._runs.append((which[filled], counts[filled], starts[filled]))

    def best(
        self, k: int, pool: ThreadPool
    ) -> tuple[Float32[np.ndarray, "n {k}"], Int64[np.ndarray, "n {k}"]]:
        """The k best pairs of each query, best first: scores and rows, +inf and -1 where missing."""
        which, counts, starts = (np.concatenate(arrays) for arrays in zip(*self._runs, strict=True))
        num_pairs = np.bincount(which, counts, self.queries).astype(np.int64)
        num_runs = np.bincount(which, minlength=self.queries)

        # the runs of a query are brought together; NumPy sorts 16-bit numbers by radix sort, which
        # is several times faster
        sortable = which.astype(np.uint16) if self.queries <= 1 << 16 else which
        order = np.argsort(sortable, kind="stable")
        counts = counts[order]
        starts = starts[order]
        first_run = np.cumsum(num_runs) - num_runs

        scores = np.empty((self.queries, k), np.float32)
        rows = np.empty((self.queries, k), np.int64)

        def sort(group: np.ndarray) -> None:
            width = max(k, int(num_pairs[group].max()))
            padding = width - num_pairs[group]
            group_runs = runs(first_run[group], num_runs[group])
            lengths = counts[group_runs]
            # the empty run of each query, its first, becomes as long as the padding of its row
            lengths[np.cumsum(num_runs[group]) - num_runs[group]] = padding
            places = runs(starts[group_runs], lengths)

            table = self._pairs.take(places, mode="clip").reshape(len(group), width)
            table[np.arange(width) < padding[:, None]] = MISSING
            if width > k:
                table.partition(k - 1, axis=1)
            table = table[:, :k]
            table.sort(axis=1)
            scores[group], rows[group] = unpacked(table)

        pool(sort, _alike(num_pairs, k, -(-self.queries // (TABLES * pool.threads))))
        return scores, rows

    def keep_best(self, k: int, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """Keep only the k best pairs of each query; returns the k-th score, +inf if there are
        fewer.
        """
        scores, rows = self.best(k, pool)
        self._forget()
        self.add(np.arange(self.queries), np.full(self.queries, k), packed(scores, rows).ravel())
        return scores[:, -1]


def _alike(counts: np.ndarray, k: int, max_rows: int) -> list[np.ndarray]:
    """All queries in groups with similar numbers of pairs; a table has at most `max_rows` rows and
    TABLE_PAIRS pairs.
    """
    order = np.argsort(counts, kind="stable")
    widths = np.maximum(counts[order], k)
    groups = []
    stop = len(order)
    while stop:
        # the last query has the most pairs, so it decides on the width of the table
        num_rows = max(1, min(max_rows, TABLE_PAIRS // int(widths[stop - 1])))
        start = max(0, stop - num_rows)
        groups.append(order[start:stop])
        stop = start
    return groups


TABLE_SCORES = 1 << 18
TABLE_QUERIES = 1024
"""Scores and queries that a thread ranks at a time."""


class ScoreTable:
    """Scores of n queries, collected in cells to find the one of a given rank.

    Args:
        sizes: [n, m] number of scores in each of the m cells of a query; cell c of query q has the
        number q * m + c.
        rank: rank of the wanted score; 1 is the smallest.
    """

    def __init__(self, sizes: Int64[np.ndarray, "n m"], rank: int) -> None:
        ends = np.cumsum(sizes, axis=1)
        self._rank = rank
        self._totals = ends[:, -1].copy()
        width = max(rank, int(self._totals.max(initial=0)))
        self._table = np.empty((len(sizes), width), np.float32)

        # offsets of cells in the flat table
        ends += np.arange(0, self._table.size, width)[:, None]
        self._sizes = sizes.ravel()
        self._starts = (ends - sizes).ravel()

    def put(self, cells: Int64[np.ndarray, " q"], scores: Float32[np.ndarray, "q w"]) -> None:
        """Put the scores of each row into its cell; scores beyond the cell's size are dropped."""
        sizes = self._sizes[cells]
        starts = self._starts[cells]
        width = scores.shape[1]
        # rows of one width are copied at once; uneven ones need a mask, which costs another pass
        if (sizes == width).all():
            self._from_any_place(width)[starts] = scores
        else:
            self._table.reshape(-1)[runs(starts, sizes)] = scores[np.arange(width) < sizes[:, None]]

    def _from_any_place(self, width: int) -> np.ndarray:
        """[places, width] view of the table: `width` numbers from each place onwards."""
        return np.ndarray(
            (self._table.size - width + 1, width), np.float32, self._table.data, strides=(4, 4)
        )

    def ranked(self, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """The score of the given rank for each query, +inf if it has fewer scores.

        The second smallest of two queries, one of which has a single score:

        >>> table = ScoreTable(np.array([[2, 1], [1, 0]]), rank=2)
        >>> table.put(np.array([0, 2]), np.array([[5, 3], [4, 9]], np.float32))
        >>> table.put(np.array([1]), np.array([[4]], np.float32))
        >>> table.ranked(lambda work, parts: [*map(work, parts)]).tolist()
        [4.0, inf]
        """
        out = np.empty(len(self._table), np.float32)
        width = self._table.shape[1]

        def rank(part: slice) -> None:
            scores = self._table[part]
            totals = self._totals[part]
            # columns before the smallest total are filled in every row
            filled = int(totals.min())
            is_empty = np.arange(filled, width) >= totals[:, None]
            scores[:, filled:][is_empty] = np.inf
            scores.partition(self._rank - 1, axis=1)
            out[part] = scores[:, self._rank - 1]

        step = min(TABLE_QUERIES, max(1, TABLE_SCORES // width))
        pool(rank, slices(len(out), step))
        return out
