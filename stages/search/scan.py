"""Scanning keys with matrix products: scores of many queries against many rows, best candidates kept.

Keys and queries are extended by one column, [-2y, |y|^2] and [x, 1], so that a single product gives
|y|^2 - 2xy, the squared distance up to the query's own norm, with nothing left to add ([-y, 0] for
inner products). Both are first moved to an origin among the keys, which changes no order and spares
digits. The best are recomputed by `pair_scores` in the end, free of cancellation.
"""

from abc import abstractmethod
from typing import Protocol

import faiss
import numpy as np
from jaxtyping import Float, Float32

from stages.search.keys import widened
from stages.search.ranking import allowed_rows, best_first, slack, without
from stages.search.searcher import GROWTH, Attempt, Searcher

PRODUCT_ELEMENTS = 2 << 20
"""Scores computed at a time: 8 MB, so that they are ranked before they leave the cache."""

ROUNDING = 1e-6
"""Two scores this close, relative to what they are computed from, may stand in the wrong order."""

NARROW = 64
"""Excluded ranges up to this width are searched along and dropped after; wider ones are masked."""


def extended_queries(
    queries: Float[np.ndarray, "n d"], origin: Float[np.ndarray, " d"], metric: str
) -> Float32[np.ndarray, "n d+1"]:
    """[n, d] -> [n, d + 1] float32, last column one."""
    out = np.empty((len(queries), queries.shape[1] + 1), np.float32)
    np.subtract(queries, origin if metric == "l2" else 0, out=out[:, :-1])
    out[:, -1] = 1
    return out


def extended_keys(
    keys: Float[np.ndarray, "m d"], origin: Float[np.ndarray, " d"], metric: str
) -> Float32[np.ndarray, "m d+1"]:
    """[m, d] in any float dtype -> [m, d + 1] float32."""
    out = np.empty((len(keys), keys.shape[1] + 1), np.float32)
    moved = out[:, :-1]
    np.subtract(widened(keys), origin, out=moved)
    out[:, -1] = np.einsum("nd,nd->n", moved, moved) if metric == "l2" else 0
    moved *= -2 if metric == "l2" else -1
    return out


class Candidates(Protocol):
    """The best `size` candidates of each of n queries while keys stream past."""

    def scan(self, which: np.ndarray, keys: np.ndarray, names: np.ndarray, hidden: np.ndarray | None = None) -> None:
        """Offer every key to some of the queries.

        Args:
            which: [q] the queries concerned.
            keys: [m, d + 1], extended.
            names: [m] int64 what the keys are called in the result.
            hidden: [q, 2] columns start .. stop - 1 that each of them may not see.
        """

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Rough scores [n, size] in rising order and names [n, size]; +inf and -1 where missing."""


def candidates(queries: np.ndarray, size: int, device: str) -> Candidates:
    """None yet, for extended queries [n, d + 1]; products are computed on `cpu` or `cuda`."""
    if device == "cpu":
        return HeapCandidates(queries, size)
    from stages.search.tensors import TensorCandidates

    return TensorCandidates(queries, size, device)


class HeapCandidates:
    """Candidates in one heap a query, on the CPU."""

    def __init__(self, queries: np.ndarray, size: int) -> None:
        self.queries = queries
        self.heap = faiss.ResultHeap(len(queries), size)
        self.product = np.empty(PRODUCT_ELEMENTS, np.float32)

    def scan(self, which: np.ndarray, keys: np.ndarray, names: np.ndarray, hidden: np.ndarray | None = None) -> None:
        columns = min(len(keys), max(1024, PRODUCT_ELEMENTS // max(len(which), 1)))
        at_once = PRODUCT_ELEMENTS // max(columns, 1)
        for first in range(0, len(which), at_once):
            part = which[first : first + at_once]
            block = self.queries[part]
            for column in range(0, len(keys), columns):
                piece = keys[column : column + columns]
                scores = self.product[: len(part) * len(piece)].reshape(len(part), len(piece))
                np.matmul(block, piece.T, out=scores)
                if hidden is not None:
                    _hide(scores, hidden[first : first + at_once] - column)
                self.heap.add_result_subset(part, scores, names[column : column + columns])

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        self.heap.finalize()
        self.heap.D[self.heap.I < 0] = np.inf
        return self.heap.D, self.heap.I


def _hide(scores: np.ndarray, columns: np.ndarray) -> None:
    columns = columns.clip(0, scores.shape[1])
    for row in np.flatnonzero(columns[:, 1] > columns[:, 0]):
        scores[row, columns[row, 0] : columns[row, 1]] = np.inf


class ScanningSearcher(Searcher):
    """Search in two steps: candidates from matrix products, then their scores without cancellation.

    Attributes:
        device: where the products are computed, `cpu` or `cuda`.
        origin: [dim] float32 a point among the keys.
    """

    device: str
    origin: np.ndarray

    def attempt(self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int) -> Attempt:
        width = 0 if exclude is None else int((exclude[:, 1] - exclude[:, 0]).max(initial=0))
        masked, wanted = (exclude, k) if width > NARROW else (None, k + max(width, 0))
        size = min(self.rows, wanted + slack(k) * GROWTH**effort)
        rough, names = self.collect(queries, size, masked, effort)
        unsure = (size < self.rows) & self._too_close(queries, rough, min(wanted, size))
        scores, ids = self.settle(queries, names)
        scores, ids = best_first(scores, without(ids, exclude), k)
        if self.reaches_all(effort):
            return Attempt(scores, ids, ~unsure)
        enough = np.minimum(k, allowed_rows(self.rows, len(ids), exclude))
        return Attempt(scores, ids, ~unsure & ((ids >= 0).sum(1) >= enough))

    def _too_close(self, queries: np.ndarray, rough: np.ndarray, k: int) -> np.ndarray:
        """Queries [n] bool whose k-th candidate and last differ by rounding at most: a better one may be missing."""
        last, kth = rough[:, -1], rough[:, k - 1]
        squares = np.einsum("nd,nd->n", queries, queries)
        if self.metric == "l2":
            squares += self.origin @ self.origin - 2 * (queries @ self.origin)
        return (last < np.inf) & (last <= kth + ROUNDING * (np.abs(squares) + np.abs(kth)))

    @abstractmethod
    def collect(
        self, queries: np.ndarray, size: int, masked: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Result of candidates of this size, without the rows in `masked` ([n, 2] ranges)."""

    @abstractmethod
    def settle(self, queries: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores by `pair_scores` and rows of the candidates, both of the shape of `names`."""

    @abstractmethod
    def reaches_all(self, effort: int) -> bool:
        """Whether this effort looks at every row."""
