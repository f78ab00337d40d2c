"""Scores of many queries, each beside others of its own, of which a bound is taken."""

import numpy as np
from jaxtyping import Float32, Int64

from stages.search.runs import runs
from stages.threads import ThreadPool

TABLE_SCORES, TABLE_QUERIES = 1 << 18, 1024
"""Scores and queries that a thread ranks at a time."""


class ScoreTable:
    """Room for scores of n queries.

    Args:
        sizes: [n, m] scores that each of m cells of a query takes; cell c of query q has the number q * m + c.
        rank: which of its smallest scores is asked for.
    """

    def __init__(self, sizes: Int64[np.ndarray, "n m"], rank: int) -> None:
        ends = np.cumsum(sizes, axis=1)
        self._rank, self._totals = rank, ends[:, -1].copy()
        self._table = np.empty((len(sizes), max(rank, int(self._totals.max(initial=0)))), np.float32)
        ends += np.arange(0, self._table.size, self._table.shape[1])[:, None]
        self._sizes, self._starts = sizes.ravel(), (ends - sizes).ravel()

    def put(self, cells: Int64[np.ndarray, " q"], scores: Float32[np.ndarray, "q w"]) -> None:
        """Put scores into these cells, as many of each row as its cell takes."""
        sizes, starts, width = self._sizes[cells], self._starts[cells], scores.shape[1]
        if (sizes == width).all():
            self._from_any_place(width)[starts] = scores
        else:
            self._table.reshape(-1)[runs(starts, sizes)] = scores[np.arange(width) < sizes[:, None]]

    def _from_any_place(self, width: int) -> np.ndarray:
        """[places, width] so many numbers of the table from any place of it on."""
        return np.ndarray((self._table.size - width + 1, width), np.float32, self._table.data, strides=(4, 4))

    def ranked(self, pool: ThreadPool) -> Float32[np.ndarray, " n"]:
        """The score of this rank of each query, +inf where it has fewer."""
        out, width = np.empty(len(self._table), np.float32), self._table.shape[1]

        def rank(part: slice) -> None:
            own, totals = self._table[part], self._totals[part]
            least = int(totals.min())
            own[:, least:][np.arange(least, width) >= totals[:, None]] = np.inf
            own.partition(self._rank - 1, axis=1)
            out[part] = own[:, self._rank - 1]

        step = min(TABLE_QUERIES, max(1, TABLE_SCORES // width))
        pool(rank, [slice(first, first + step) for first in range(0, len(out), step)])
        return out
