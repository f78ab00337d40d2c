"""Search with FAISS's own `index.search`, for kinds of index that are not searched list by list."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import faiss
import numpy as np

from stages.search.ranking import allowed_rows, best_first, score_to_distance, slack, without
from stages.search.searcher import Attempt, Searcher

REFINE_FACTOR = 8
"""Candidates a neighbour whose distances an index with refinement (`…,RFlat`) recomputes."""

SMALLEST_EF = 128
"""Least breadth of a search in an HNSW graph; twice the neighbours wanted, if that is more."""

WIDEST_FIRST = 1024
"""Excluded rows that the first attempt fetches on top; longer ranges are met by fetching more."""


class PlainSearcher(Searcher):
    """Any FAISS index, searched in batches.

    Excluded rows are fetched and dropped. A query that is left with fewer than k is searched again for
    four times as many rows, in four times as many lists, in the end everywhere.
    """

    def __init__(self, index: Any, metric: str, probe: int | None, lossless: bool) -> None:
        super().__init__(rows=index.ntotal, dim=index.d, metric=metric, lossless=lossless)
        self.index, self.probe = index, probe
        self.ivf: Any = faiss.try_extract_index_ivf(index)

    def attempt(self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int) -> Attempt:
        width = 0 if exclude is None else int((exclude[:, 1] - exclude[:, 0]).clip(0).max(initial=0))
        size = min(self.rows, (k + min(width, WIDEST_FIRST) + slack(k)) * 4**effort)
        exhausted = self._set_breadth(size, effort) and size == self.rows
        # the last attempt must end the search, so nothing may stay out of its sight
        with self._every_list_found() if exhausted else nullcontext():
            distances, ids = self._index(exhausted).search(queries, size)
        scores = score_to_distance(distances, self.metric)
        scores, ids = best_first(scores, without(ids, exclude), k)
        enough = np.minimum(k, allowed_rows(self.rows, len(ids), exclude))
        return Attempt(scores, ids, exhausted | ((ids >= 0).sum(1) >= enough))

    def _set_breadth(self, size: int, effort: int) -> bool:
        """How widely the next search looks; returns whether it looks everywhere."""
        space = faiss.ParameterSpace()
        if self.ivf is not None:
            probe = min(self.ivf.nlist, (self.probe or 1) * 4**effort)
            space.set_index_parameter(self.index, "nprobe", probe)
        if isinstance(self.index, faiss.IndexHNSW):
            self.index.hnsw.efSearch = max(SMALLEST_EF, 2 * size)
        if isinstance(self.index, faiss.IndexRefine):
            self.index.k_factor = min(REFINE_FACTOR, max(1, self.rows // size))
        return self.ivf is None or probe == self.ivf.nlist

    @contextmanager
    def _every_list_found(self) -> Iterator[None]:
        """Lists are found by comparing with all their centroids, not by a graph that may not lead to some."""
        graph = None if self.ivf is None else faiss.downcast_index(self.ivf.quantizer)
        if not isinstance(graph, faiss.IndexHNSW):
            yield
            return
        self.ivf.quantizer = graph.storage
        try:
            yield
        finally:
            self.ivf.quantizer = graph

    def _index(self, exhausted: bool) -> Any:
        """The index, or the keys behind a graph that may not lead to all of them."""
        if exhausted and isinstance(self.index, faiss.IndexHNSW):
            return self.index.storage
        return self.index
