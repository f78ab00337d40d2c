"""Interface of an opened index: a search gives ids and distances of the k best allowed rows."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int64

from stages.machine import free_memory_bytes
from stages.search.ranking import pick, score_to_distance
from stages.threads import slices, thread_pool

BLOCK_BYTES = 512 << 20
BLOCK_SHARE = 4
"""Queries and candidates of one block: at most BLOCK_BYTES, and at most a quarter of the free
memory.
"""

COPIED_QUERIES = 256
"""Queries whose results a thread copies at a time."""

GROWTH = 16
"""Factor by which candidates beyond k grow if too many are equal. Equal keys come in hundreds,
since every window of a corpus begins with few inputs."""


def block_bytes() -> int:
    """Bytes of queries and candidates that a search may hold beyond its result; pairs may take the
    same again.
    """
    free = free_memory_bytes()
    return BLOCK_BYTES if free is None else min(BLOCK_BYTES, free // BLOCK_SHARE)


class Attempt(NamedTuple):
    """One try at a block of queries.

    Attributes:
        scores: [n, k] float32, rising; +inf where missing.
        ids: [n, k] int64; -1 where missing.
        complete: [n] bool, True if more effort cannot improve the result.
    """

    scores: np.ndarray
    ids: np.ndarray
    complete: np.ndarray


class Searcher(ABC):
    """Finds the nearest rows of one datastore; independent of artifacts.

    Attributes:
        rows: number of keys in the index.
        dim: width of a key.
        metric: `l2` (squared distance, smaller is better) or `ip` (inner product, larger is
        better).
        lossless: whether distances are those of the stored keys, so that recomputing them changes
        nothing.
    """

    def __init__(self, rows: int, dim: int, metric: str, lossless: bool) -> None:
        self.rows = rows
        self.dim = dim
        self.metric = metric
        self.lossless = lossless

    @property
    def candidate_bytes(self) -> int:
        """Bytes of memory for each wanted neighbour of a query, its entry in the result included."""
        return 24

    def search(
        self,
        queries: Float[np.ndarray, "n {self.dim}"],
        k: int,
        exclude_ranges: Int64[np.ndarray, "n 2"] | None = None,
    ) -> tuple[Int64[np.ndarray, "n {k}"], Float32[np.ndarray, "n {k}"]]:
        """The k best allowed rows of each query, best first; of equal ones the smaller row comes
        first.

        Args:
            queries: [n, dim] float32, already rounded to the dtype of the stored keys. A larger n
                takes less time a query; the memory used beyond the result is bounded.
            k: neighbours wanted, >= 1; may exceed the number of rows.
            exclude_ranges: [n, 2] int64, rows start <= row < stop that the query may not see
                (start == stop: none).
        Returns: ids [n, k] int64 and distances [n, k] float32. If there are fewer than k allowed
            rows, the rest is id -1 with distance +inf (l2) or -inf (ip).
        """
        queries = np.ascontiguousarray(queries, np.float32)
        query_bytes = 8 * self.dim + self.candidate_bytes * k
        step = max(1, block_bytes() // query_bytes)
        if len(queries) <= step:
            best, rows = self._search_block(queries, k, exclude_ranges)
            return rows, score_to_distance(best, self.metric)

        ids = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)
        for block in slices(len(queries), step):
            result = self._search_block(queries[block], k, pick(exclude_ranges, block))
            _put(result, scores[block], ids[block])
        return ids, score_to_distance(scores, self.metric)

    def _search_block(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search a block, then search again with more effort for queries that are not complete."""
        scores, ids, complete = self.attempt(queries, k, exclude, 0)
        pending = np.flatnonzero(~complete)
        effort = 1
        while len(pending):
            # these queries hold more candidates each, so fewer of them fit into a block
            query_bytes = 8 * self.dim + self.candidate_bytes * k * GROWTH**effort
            step = max(1, block_bytes() // query_bytes)
            for part in slices(len(pending), step):
                which = pending[part]
                result = self.attempt(queries[which], k, pick(exclude, which), effort)
                scores[which] = result.scores
                ids[which] = result.ids
                complete[which] = result.complete
            pending = pending[~complete[pending]]
            effort += 1
        return scores, ids

    @abstractmethod
    def attempt(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> Attempt:
        """Search a block; the caller raises the effort (0, 1, …) until every query is complete."""


def _put(result: tuple[np.ndarray, np.ndarray], scores: np.ndarray, ids: np.ndarray) -> None:
    """Copy scores and rows of a block into the result; one thread alone would take a tenth of the
    search's time.
    """
    best_scores, best_ids = result

    def put(part: slice) -> None:
        scores[part] = best_scores[part]
        ids[part] = best_ids[part]

    with thread_pool() as pool:
        pool(put, slices(len(ids), COPIED_QUERIES))
