"""Pairs and scores of many queries, found in pieces: the best of each query, or a bound on them."""

from threading import Lock

import numpy as np
from jaxtyping import Float32, Int64, Integer

from stages.search.ranking import MISSING, packed, unpacked
from stages.threads import ThreadPool, slices


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


TABLE_PAIRS, TABLES = 1 << 18, 4
"""Pairs that a thread sorts at a time, 2 MB, and the number of tables that each thread should get."""


class TooMany(Exception):
    """More pairs were found than the buffer holds."""


class TopKBuffer:
    """The k best pairs of n queries so far; pieces may come in any order, and from several threads.

    Args:
        columns: cells of each query; each takes the pairs of one piece. Cell c of query q has the number
            q * columns + c.
        most: largest number of pairs; None: any number, but only one thread may add them.

    Attributes:
        pairs: number of pairs in the buffer.
    """

    def __init__(self, queries: int, columns: int, most: int | None = None) -> None:
        self.queries, self.columns, self._most = queries, columns, most
        self._pairs = np.empty(most or 0, np.int64)  # pages take memory only once they are written
        self._adding = Lock()
        self._forget()

    def _forget(self) -> None:
        self.pairs = 0
        self._counts = np.zeros((self.queries, self.columns), np.int32)
        self._starts = np.zeros((self.queries, self.columns), np.int32)

    def add(
        self, cells: Int64[np.ndarray, " q"], counts: Int64[np.ndarray, " q"], pairs: Int64[np.ndarray, " p"]
    ) -> None:
        """Add `packed` pairs, cell after cell; each cell is filled once. Raises: TooMany."""
        # only the position is shared: threads then write to separate cells and pairs
        start = self._place_for(len(pairs))
        self._pairs[start : start + len(pairs)] = pairs
        self._counts.reshape(-1)[cells] = counts
        self._starts.reshape(-1)[cells] = np.cumsum(counts) - counts + start

    def _place_for(self, pairs: int) -> int:
        with self._adding:
            start, stop = self.pairs, self.pairs + pairs
            if stop > len(self._pairs):
                if self._most is not None:
                    raise TooMany
                more = np.empty(2 * stop, np.int64)
                more[:start] = self._pairs[:start]
                self._pairs = more
            self.pairs = stop
        return start

    def best(self, k: int, pool: ThreadPool) -> tuple[Float32[np.ndarray, "n {k}"], Int64[np.ndarray, "n {k}"]]:
        """The k best of each query, best first: scores and rows, +inf and -1 where missing."""
        totals = self._counts.sum(axis=1, dtype=np.int64)
        scores = np.empty((self.queries, k), np.float32)
        rows = np.empty((self.queries, k), np.int64)

        def sort(some: np.ndarray) -> None:
            table = self._table(some, totals[some], k)
            if table.shape[1] > k:
                table.partition(k - 1, axis=1)
                table = table[:, :k]
            table.sort(axis=1)
            scores[some], rows[some] = unpacked(table)

        pool(sort, _alike(totals, k, -(-self.queries // (TABLES * pool.threads))))
        return scores, rows

    def keep_best(self, k: int, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """Keep only the k best pairs of each query, in its first cell; returns the k-th score.

        It is +inf if there are fewer.
        """
        scores, rows = self.best(k, pool)
        self._forget()
        self.add(np.arange(self.queries) * self.columns, np.full(self.queries, k), packed(scores, rows).ravel())
        return scores[:, -1]

    def _table(self, some: np.ndarray, totals: np.ndarray, k: int) -> np.ndarray:
        """Pairs of some queries as rows of a table [q, k or more], padded with MISSING."""
        width = max(k, int(totals.max(initial=0)))
        # `take` refuses an empty array, even if every index is clipped
        if not self.pairs:
            return np.full((len(some), width), MISSING)
        pads = width - totals[:, None]  # a last run of arbitrary pairs
        starts = np.concatenate([self._starts[some], np.zeros_like(pads)], axis=1)
        lengths = np.concatenate([self._counts[some], pads], axis=1)
        table = self._pairs.take(runs(starts.ravel(), lengths.ravel()), mode="clip").reshape(len(some), width)
        table[np.arange(width) >= totals[:, None]] = MISSING
        return table


def _alike(counts: np.ndarray, k: int, most: int) -> list[np.ndarray]:
    """All queries in groups with similar numbers of pairs; a table has at most `most` rows and TABLE_PAIRS pairs."""
    order = np.argsort(counts, kind="stable")
    widths = np.maximum(counts[order], k)
    parts, stop = [], len(order)
    while stop:
        start = max(0, stop - max(1, min(most, TABLE_PAIRS // int(widths[stop - 1]))))
        parts.append(order[start:stop])
        stop = start
    return parts


TABLE_SCORES, TABLE_QUERIES = 1 << 18, 1024
"""Scores and queries that a thread ranks at a time."""


class ScoreTable:
    """Scores of n queries, collected in cells to find the one of a given rank.

    Args:
        sizes: [n, m] number of scores in each of the m cells of a query; cell c of query q has the number q * m + c.
        rank: rank of the wanted score; 1 is the smallest.
    """

    def __init__(self, sizes: Int64[np.ndarray, "n m"], rank: int) -> None:
        ends = np.cumsum(sizes, axis=1)
        self._rank, self._totals = rank, ends[:, -1].copy()
        self._table = np.empty((len(sizes), max(rank, int(self._totals.max(initial=0)))), np.float32)
        ends += np.arange(0, self._table.size, self._table.shape[1])[:, None]
        self._sizes, self._starts = sizes.ravel(), (ends - sizes).ravel()

    def put(self, cells: Int64[np.ndarray, " q"], scores: Float32[np.ndarray, "q w"]) -> None:
        """Put the scores of each row into its cell; scores beyond the cell's size are dropped."""
        sizes, starts, width = self._sizes[cells], self._starts[cells], scores.shape[1]
        # rows of one width are copied at once; uneven ones need a mask, which costs another pass
        if (sizes == width).all():
            self._from_any_place(width)[starts] = scores
        else:
            self._table.reshape(-1)[runs(starts, sizes)] = scores[np.arange(width) < sizes[:, None]]

    def _from_any_place(self, width: int) -> np.ndarray:
        """[places, width] view of the table: `width` numbers from each place onwards."""
        return np.ndarray((self._table.size - width + 1, width), np.float32, self._table.data, strides=(4, 4))

    def ranked(self, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """The score of the given rank for each query, +inf if it has fewer scores.

        The second smallest of two queries, one of which has a single score:

        >>> table = ScoreTable(np.array([[2, 1], [1, 0]]), rank=2)
        >>> table.put(np.array([0, 2]), np.array([[5, 3], [4, 9]], np.float32))
        >>> table.put(np.array([1]), np.array([[4]], np.float32))
        >>> table.ranked(lambda work, parts: [*map(work, parts)]).tolist()
        [4.0, inf]
        """
        out, width = np.empty(len(self._table), np.float32), self._table.shape[1]

        def rank(part: slice) -> None:
            own, totals = self._table[part], self._totals[part]
            least = int(totals.min())
            own[:, least:][np.arange(least, width) >= totals[:, None]] = np.inf
            own.partition(self._rank - 1, axis=1)
            out[part] = own[:, self._rank - 1]

        step = min(TABLE_QUERIES, max(1, TABLE_SCORES // width))
        pool(rank, slices(len(out), step))
        return out
