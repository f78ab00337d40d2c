"""BM25 search by the package rank-bm25, one query at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class RankBm25:
    """Documents searched with each other as queries, by `rank_bm25.BM25Okapi`.

    A query reads every document once per term: 20,000 segments of 128 tokens take hours.
    The matches equal those of `Bm25Index` with the scoring `okapi`: scores are compared as float32,
    ties go to the smaller id.
    """

    def __init__(self, segments: Sequence[np.ndarray], hidden: np.ndarray) -> None:
        """Args:
        segments: token ids of each.
        hidden: range [start, stop) of segments that each one must not find, int64 [S, 2].
        """
        from rank_bm25 import BM25Okapi

        self._documents: list[list[int]] = [segment.tolist() for segment in segments]
        self._hidden = hidden
        self._bm25: Any = BM25Okapi(self._documents)

    def search(self, start: int, stop: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents for documents start .. stop - 1 as queries, the best first, without
        hidden ones.

        Args:
            k: at most S - 1.
        Returns: ids int64 [n, k], -1 where fewer may be found, and scores float32 [n, k].
        """
        num_queries = stop - start
        ids = np.empty((num_queries, k), np.int64)
        best = np.empty((num_queries, k), np.float32)
        for row in range(num_queries):
            query = start + row
            scores = self._bm25.get_scores(self._documents[query]).astype(np.float32)
            hidden_start, hidden_stop = self._hidden[query]
            scores[hidden_start:hidden_stop] = -np.inf

            # A stable order lets ties go to the smaller id.
            chosen = np.argsort(-scores, kind="stable")[:k]
            chosen_scores = scores[chosen]
            best[row] = chosen_scores
            ids[row] = np.where(np.isneginf(chosen_scores), -1, chosen)
        return ids, best
