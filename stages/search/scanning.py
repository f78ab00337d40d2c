"""Search by scanning keys with matrix products, here or on another device."""

from abc import abstractmethod

import numpy as np

from stages.search.ranking import allowed_rows
from stages.search.scan import QueryBlock
from stages.search.searcher import Attempt, Searcher
from stages.threads import ThreadPool, in_turn, thread_pool

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
        if self.device == "cpu":
            with thread_pool(small=self.is_small(len(queries))) as pool:
                scores, ids = self.nearest(queries, k, exclude, effort, pool)
        else:
            scores, ids = self.nearest_on_device(queries, k, exclude, effort)
        return Attempt(scores, ids, self._is_enough(ids, exclude, effort))

    @property
    def candidate_bytes(self) -> int:
        """On another device than the CPU the result alone takes memory here."""
        return 24 if self.device == "cpu" else 12

    def is_small(self, queries: int) -> bool:
        """Whether a search of so many queries is not worth other threads."""
        return queries <= FEW_QUERIES

    def block(self, queries: np.ndarray, exclude: np.ndarray | None, pool: ThreadPool = in_turn) -> QueryBlock:
        """Queries as products take them."""
        return QueryBlock(queries, self.origin, self.metric, exclude, pool)

    def _is_enough(self, ids: np.ndarray, exclude: np.ndarray | None, effort: int) -> np.ndarray:
        """Queries [n] bool that have found as many rows as they may see, or for which all were looked at."""
        if self.reaches_all(effort):
            return np.ones(len(ids), bool)
        enough = np.minimum(ids.shape[1], allowed_rows(self.rows, len(ids), exclude))
        last = ids[np.arange(len(ids)), np.maximum(enough, 1) - 1]  # missing ones come last
        return (last >= 0) | (enough == 0)

    @abstractmethod
    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows [n, k] of the best allowed rows that this effort looks at, as `Attempt` has them."""

    @abstractmethod
    def reaches_all(self, effort: int) -> bool:
        """Whether this effort looks at every row."""

    @abstractmethod
    def nearest_on_device(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same as `nearest`, computed on `device`."""
