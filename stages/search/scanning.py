"""Search by scanning keys with matrix products, here or on another device."""

from abc import abstractmethod

import numpy as np

from stages.search.ranking import allowed_rows, best_first, slack, without
from stages.search.scan import NARROW, QueryBlock, widest
from stages.search.searcher import GROWTH, Attempt, Searcher
from stages.threads import Share, in_turn, shared_out

FEW_QUERIES = 32
"""Up to so many are not worth other threads."""


class ScanningSearcher(Searcher):
    """Candidates from matrix products, then their scores without cancellation.

    Attributes:
        device: where the products are computed, `cpu` or `cuda`.
        origin: [dim] float32 a point among the keys.
    """

    device: str
    origin: np.ndarray

    def attempt(self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int) -> Attempt:
        if self.device != "cpu":
            return self._attempt_on_device(queries, k, exclude, effort)
        with shared_out(small=self.is_small(len(queries))) as share:
            scores, ids = self.nearest(queries, k, exclude, effort, share)
        return Attempt(scores, ids, self._is_enough(ids, exclude, effort))

    def is_small(self, queries: int) -> bool:
        """Whether a search of so many queries is not worth other threads."""
        return queries <= FEW_QUERIES

    def block(self, queries: np.ndarray, exclude: np.ndarray | None, share: Share = in_turn) -> QueryBlock:
        """Queries as products take them."""
        return QueryBlock(queries, self.origin, self.metric, exclude, share)

    def _is_enough(self, ids: np.ndarray, exclude: np.ndarray | None, effort: int) -> np.ndarray:
        """Queries [n] bool that have found as many rows as they may see, or for which all were looked at."""
        if self.reaches_all(effort):
            return np.ones(len(ids), bool)
        enough = np.minimum(ids.shape[1], allowed_rows(self.rows, len(ids), exclude))
        last = ids[np.arange(len(ids)), np.maximum(enough, 1) - 1]  # missing ones come last
        return (last >= 0) | (enough == 0)

    @abstractmethod
    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, share: Share
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows [n, k] of the best allowed rows that this effort looks at, as `Attempt` has them."""

    @abstractmethod
    def reaches_all(self, effort: int) -> bool:
        """Whether this effort looks at every row."""

    # On another device

    def _attempt_on_device(self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int) -> Attempt:
        width = widest(exclude)
        masked, wanted = (exclude, k) if width > NARROW else (None, k + width)
        size = min(self.rows, wanted + slack(k) * GROWTH**effort)
        block = self.block(queries, masked)
        rough, names, radius = self.collect(block, size, effort)
        unsure = (size < self.rows) & _too_close(block, rough, min(wanted, size), radius)
        scores, ids = self.settle(queries, names)
        scores, ids = best_first(scores, without(ids, exclude), k)
        return Attempt(scores, ids, ~unsure & self._is_enough(ids, exclude, effort))

    @abstractmethod
    def collect(self, queries: QueryBlock, size: int, effort: int) -> tuple[np.ndarray, np.ndarray, np.float32]:
        """Rough scores and names [n, size] of the best candidates, without excluded rows where these are hidden.

        With them the distance from the origin within which all keys lie that were looked at.
        """

    @abstractmethod
    def settle(self, queries: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores by `pair_scores` and rows of the candidates, both of the shape of `names`."""


def _too_close(queries: QueryBlock, rough: np.ndarray, k: int, radius: np.float32) -> np.ndarray:
    """Queries [n] bool whose k-th candidate and last differ by rounding at most: a better one may be missing."""
    last = rough[:, -1]
    return (last < np.inf) & (last <= queries.allowed(queries.reach(rough[:, k - 1], radius), radius))
