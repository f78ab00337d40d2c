"""Search of inverted lists by FAISS's own loops, with the order and distances of all searchers here.

FAISS compares one query after another, in calls that never wait for Python. On many threads this
is faster than products of whole lists, between which threads wait for each other.
"""

from typing import Any

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from stages.search.blocks import ListQueries
from stages.search.distances import pair_scores
from stages.search.lists import InvertedLists
from stages.search.ranking import best_first, slack, without
from stages.search.scan import widest
from stages.search.searcher import Attempt
from stages.threads import ThreadPool, slices

QUERIES = 64
"""Queries that a thread searches or ranks at a time."""

CANDIDATE_BYTES = 40
"""Bytes of memory for each candidate of a query, before its neighbours are chosen."""

OFFSET_BITS = 32
"""Bits of a place in a list. FAISS packs the number of the list above them (`lo_build`)."""

ROUNDING = 2.0**-24
"""Largest relative error of one operation on float32."""


class FaissLists:
    """Candidates of FAISS, compared again with the stored keys.

    The lists must hold whole keys, and the metric is `l2`.
    """

    def __init__(self, ivf: Any, lists: InvertedLists) -> None:
        self.ivf = ivf
        self.lists = lists
        # each distance is a sum of d squares, none of which is negative; there are two to compare
        self._tolerance = np.float32(2 * (ivf.d + 3) * ROUNDING)

    def candidates(self, k: int, exclude: Int64[np.ndarray, "n 2"] | None) -> int:
        """Number of candidates of each query: excluded rows are fetched, and dropped afterwards."""
        return min(int(self.ivf.ntotal), k + widest(exclude) + slack(k))

    def nearest(
        self,
        queries: Float32[np.ndarray, "n d"],
        nearest_lists: Int64[np.ndarray, "n probe"],
        k: int,
        exclude: Int64[np.ndarray, "n 2"] | None,
        pool: ThreadPool,
    ) -> Attempt:
        """The k best allowed rows of each query in some lists; -1 is no list.

        A query is complete if no other row of its lists can be one of the k best. It is not if
        too many rows are equal, or too many excluded.
        """
        count = self.candidates(k, exclude)
        distances, labels = self._search(queries, nearest_lists, count, pool)
        scores, rows = self._compare(queries, labels, pool)

        best_scores = np.empty((len(queries), k), np.float32)
        best_rows = np.empty((len(queries), k), np.int64)
        complete = np.empty(len(queries), bool)

        def rank(part: slice) -> None:
            excluded = None if exclude is None else exclude[part]
            allowed = without(rows[part], excluded)
            best_scores[part], best_rows[part] = best_first(scores[part], allowed, k)

            # rows that were not fetched are at least as far as the last candidate, up to rounding;
            # an equal one may have a smaller number, so the last neighbour has to be nearer
            farthest = distances[part, -1] * (1 - self._tolerance)
            is_exhausted = labels[part, -1] < 0
            complete[part] = is_exhausted | (best_scores[part, -1] < farthest)

        pool(rank, slices(len(queries), QUERIES))
        return Attempt(best_scores, best_rows, complete)

    def _search(
        self, queries: np.ndarray, nearest_lists: np.ndarray, count: int, pool: ThreadPool
    ) -> tuple[Float32[np.ndarray, "n count"], Int64[np.ndarray, "n count"]]:
        """FAISS's distances and labels, nearest first; a label is a list and a place in it, or -1."""
        distances = np.empty((len(queries), count), np.float32)
        labels = np.empty((len(queries), count), np.int64)
        # distances to centroids only matter to codes of residuals, and whole keys are not
        to_centroids = np.zeros(nearest_lists.shape, np.float32)
        parameters = faiss.SearchParametersIVF(nprobe=nearest_lists.shape[1])  # type: ignore[call-arg]  # of the stubs

        def search(part: slice) -> None:
            self.ivf.search_preassigned_c(
                part.stop - part.start,
                faiss.swig_ptr(queries[part]),
                count,
                faiss.swig_ptr(nearest_lists[part]),
                faiss.swig_ptr(to_centroids[part]),
                faiss.swig_ptr(distances[part]),
                faiss.swig_ptr(labels[part]),
                True,  # labels name lists and places, not rows
                parameters,
            )

        pool(search, slices(len(queries), QUERIES))
        return distances, labels

    def _compare(
        self, queries: np.ndarray, labels: np.ndarray, pool: ThreadPool
    ) -> tuple[Float32[np.ndarray, "n count"], Int64[np.ndarray, "n count"]]:
        """Scores as `pair_scores` sums them, and rows; +inf and -1 where there is no candidate.

        FAISS sums float16 keys in another order, and the last digits would depend on the engine.
        """
        count = labels.shape[1]
        scores = np.full(labels.shape, np.inf, np.float32)
        rows = np.full(labels.shape, -1, np.int64)
        # views: what is written to them stands in the tables
        flat_scores = scores.reshape(-1)
        flat_rows = rows.reshape(-1)

        # the label -1 keeps its sign, so it is no list
        list_of_candidate = labels >> OFFSET_BITS
        place_in_list = labels.reshape(-1) & ((1 << OFFSET_BITS) - 1)
        candidates = ListQueries(list_of_candidate, len(self.lists.sizes), pool)

        def compare(number: int) -> None:
            pairs = candidates.of([number])
            places = place_in_list[pairs]
            owners = pairs // count
            keys = self.lists.keys(number)
            flat_scores[pairs] = pair_scores(queries, owners, keys, places, "l2")
            flat_rows[pairs] = self.lists.ids(number)[places]

        # all candidates of a list are compared together, in the order of the lists
        visited = np.flatnonzero(candidates.counts).tolist()
        pool(compare, visited)
        return scores, rows
