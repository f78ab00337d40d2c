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

    # the difference of each number from the one before; where a run begins, it is a jump from the
    # last number of the run before
    total = int(ends[-1])
    differences = np.full(total, step, np.int64)
    differences[0] = starts[0]
    lengths_before = lengths[:-1]
    differences[ends[:-1]] = np.diff(starts) - step * (lengths_before - 1)
    return np.cumsum(differences)  # in place it would block other threads


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
        """Empty the buffer."""
        self.number = 0
        # runs of pairs: their queries, lengths, and starts among all pairs; each query begins with
        # an empty run, which `best` fills up
        zeros = np.zeros(self.queries, np.int64)
        self._runs = [(np.arange(self.queries), zeros, zeros)]

    def add(
        self,
        which: Int64[np.ndarray, " q"],
        counts: Int64[np.ndarray, " q"],
        pairs: Int64[np.ndarray, " p"],
    ) -> None:
        """Add `counts` of `packed` pairs for each of some queries, query after query.

        Raises: TooMany.
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
            starts = start + np.cumsum(counts) - counts
            self._runs.append((which[filled], counts[filled], starts[filled]))

    def best(
        self, k: int, pool: ThreadPool
    ) -> tuple[Float32[np.ndarray, "n {k}"], Int64[np.ndarray, "n {k}"]]:
        """The k best pairs of each query, best first: scores and rows, +inf and -1 where missing."""
        # [runs]: query, length and start of each
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
            # one row for each query of the group, as wide as that with the most pairs
            width = max(k, int(num_pairs[group].max()))
            padding = width - num_pairs[group]

            # the empty run of each query, its first, becomes as long as the padding of its row
            group_runs = runs(first_run[group], num_runs[group])
            lengths = counts[group_runs]
            empty_runs = np.cumsum(num_runs[group]) - num_runs[group]
            lengths[empty_runs] = padding

            # what padding reads is some pair, or lies beyond the end, and is overwritten
            places = runs(starts[group_runs], lengths)
            table = self._pairs.take(places, mode="clip").reshape(len(group), width)
            is_padding = np.arange(width) < padding[:, None]
            table[is_padding] = MISSING

            # sorting only the k best of many is faster
            if width > k:
                table.partition(k - 1, axis=1)
            table = table[:, :k]
            table.sort(axis=1)
            scores[group], rows[group] = unpacked(table)

        max_rows = -(-self.queries // (TABLES * pool.threads))
        pool(sort, _alike(num_pairs, k, max_rows))
        return scores, rows

    def keep_best(self, k: int, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """Keep only the k best pairs of each query; returns the k-th score, +inf if there are
        fewer.
        """
        scores, rows = self.best(k, pool)
        self._forget()

        all_queries = np.arange(self.queries)
        counts = np.full(self.queries, k)
        self.add(all_queries, counts, packed(scores, rows).ravel())
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
        num_queries = len(sizes)
        ends = np.cumsum(sizes, axis=1)
        self._rank = rank
        # `ends` changes below
        self._totals = ends[:, -1].copy()
        # a row with too few scores is padded, so there is a score of the rank in each
        width = max(rank, int(self._totals.max(initial=0)))
        self._table = np.empty((num_queries, width), np.float32)

        # offsets of cells in the flat table
        row_starts = np.arange(0, self._table.size, width)
        ends += row_starts[:, None]
        self._starts = (ends - sizes).ravel()
        self._sizes = sizes.ravel()

    def put(self, cells: Int64[np.ndarray, " q"], scores: Float32[np.ndarray, "q w"]) -> None:
        """Put the scores of each row into its cell; scores beyond the cell's size are dropped."""
        sizes = self._sizes[cells]
        starts = self._starts[cells]
        width = scores.shape[1]
        # rows of one width are copied at once; uneven ones need a mask, which costs another pass
        if (sizes == width).all():
            windows = self._windows(width)
            windows[starts] = scores
        else:
            has_room = np.arange(width) < sizes[:, None]
            places = runs(starts, sizes)
            self._table.reshape(-1)[places] = scores[has_room]

    def _windows(self, width: int) -> np.ndarray:
        """[places, width] view of the table: `width` numbers from each place onwards."""
        num_places = self._table.size - width + 1
        # four bytes to the next place, and four to the next number: windows overlap
        return np.ndarray((num_places, width), np.float32, self._table.data, strides=(4, 4))

    def ranked(self, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """The score of the given rank for each query, +inf if it has fewer scores.

        The second smallest of two queries, one of which has a single score:

        >>> table = ScoreTable(np.array([[2, 1], [1, 0]]), rank=2)
        >>> table.put(np.array([0, 2]), np.array([[5, 3], [4, 9]], np.float32))
        >>> table.put(np.array([1]), np.array([[4]], np.float32))
        >>> table.ranked(lambda work, parts: [*map(work, parts)]).tolist()
        [4.0, inf]
        """
        num_queries, width = self._table.shape
        out = np.empty(num_queries, np.float32)

        def rank(part: slice) -> None:
            scores = self._table[part]
            totals = self._totals[part]

            # columns before the smallest total are filled in every row
            first_empty = int(totals.min())
            is_empty = np.arange(first_empty, width) >= totals[:, None]
            unfilled = scores[:, first_empty:]
            unfilled[is_empty] = np.inf

            scores.partition(self._rank - 1, axis=1)
            out[part] = scores[:, self._rank - 1]

        step = min(TABLE_QUERIES, max(1, TABLE_SCORES // width))
        pool(rank, slices(num_queries, step))
        return out
