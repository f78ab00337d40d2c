"""Pairs found in pieces, of many queries at once, put together as the best of each query."""

import numpy as np
from jaxtyping import Float32, Int64

from stages.search.ranking import MISSING, packed, unpacked
from stages.search.scan import Pairs
from stages.threads import Share

TABLE_PAIRS = 1 << 18
"""Pairs that a thread sorts at a time: 2 MB."""


class Found:
    """What n queries have found so far; pieces may come in any order, and from several threads.

    `pairs`: how many there are, about, where several threads add at once.
    """

    def __init__(self, queries: int) -> None:
        self.queries, self.pairs = queries, 0
        self.pieces: list[Pairs] = []

    def add(self, piece: Pairs) -> None:
        self.pieces.append(piece)
        self.pairs += len(piece.packed)

    def best(self, k: int, share: Share) -> tuple[Float32[np.ndarray, "n {k}"], Int64[np.ndarray, "n {k}"]]:
        """The k best of each query, best first: scores and rows, +inf and -1 where missing."""
        pairs, ends = self._by_query(share)
        counts = np.diff(ends, prepend=0)
        scores = np.empty((self.queries, k), np.float32)
        rows = np.empty((self.queries, k), np.int64)

        def sort(some: np.ndarray) -> None:
            table = _table(pairs, ends[some] - counts[some], ends[some], k)
            if table.shape[1] > k:
                table.partition(k - 1, axis=1)
                table = table[:, :k]
            table.sort(axis=1)
            scores[some], rows[some] = unpacked(table)

        share(sort, _alike(counts, k))
        return scores, rows

    def keep_best(self, k: int, share: Share) -> Float32[np.ndarray, " n"]:
        """Forget all but the k best of each query; returns their largest scores, +inf where there are fewer."""
        scores, rows = self.best(k, share)
        everyone, counts = np.arange(self.queries), np.full(self.queries, k)
        self.pieces, self.pairs = [], 0
        self.add(Pairs(everyone, counts, packed(scores, rows).ravel()))
        return scores[:, -1]

    def _by_query(self, share: Share) -> tuple[np.ndarray, np.ndarray]:
        """All pairs, query after query, [h], and where those of each end, [n]."""
        total = np.zeros(self.queries, np.int64)
        for piece in self.pieces:
            total[piece.which] += piece.counts
        ends = np.cumsum(total)
        out, filled, jobs = np.empty(int(total.sum()), np.int64), ends - total, []
        for piece in self.pieces:
            jobs.append((filled[piece.which] - np.cumsum(piece.counts) + piece.counts, piece))
            filled[piece.which] += piece.counts

        def place(job: tuple[np.ndarray, Pairs]) -> None:
            shifts, piece = job
            out[np.repeat(shifts, piece.counts) + np.arange(len(piece.packed))] = piece.packed

        share(place, jobs)
        return out, ends


def _alike(counts: np.ndarray, k: int) -> list[np.ndarray]:
    """All queries, those with about as many pairs together, for tables of TABLE_PAIRS or a single row."""
    order = np.argsort(counts, kind="stable")
    widths = np.maximum(counts[order], k)
    parts, stop = [], len(order)
    while stop:
        start = max(0, stop - max(1, TABLE_PAIRS // int(widths[stop - 1])))
        parts.append(order[start:stop])
        stop = start
    return parts


def _table(pairs: np.ndarray, starts: np.ndarray, ends: np.ndarray, k: int) -> np.ndarray:
    """Pairs of some queries as rows [q, k or more], padded."""
    width = max(k, int((ends - starts).max(initial=0)))
    places = starts[:, None] + np.arange(width)
    table = pairs.take(places, mode="clip") if len(pairs) else np.empty(places.shape, np.int64)
    table[places >= ends[:, None]] = MISSING
    return table
