"""The same matches by the package rank-bm25 itself: one query at a time, for small corpora and to compare with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rank_bm25 import BM25Okapi


class RankBm25:
    """Documents that are searched with themselves by `rank_bm25.BM25Okapi`.

    A query reads every document once for each of its terms: 20,000 segments of 128 tokens take hours.
    Finds what `Bm25Index` does with the scoring `okapi`: scores are compared as float32, equal ones by the smaller id.
    """

    def __init__(self, segments: Sequence[np.ndarray], hidden: np.ndarray) -> None:
        """Args:
        segments: token ids of each.
        hidden: the segments [start, stop) that each may not find, int64 [S, 2].
        """
        self._documents: list[list[int]] = [segment.tolist() for segment in segments]
        self._hidden = hidden
        self._bm25: Any = BM25Okapi(self._documents)

    def search(self, start: int, stop: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents, of those that each may find, for documents start .. stop - 1, the best first.

        Args:
            k: at most S - 1.
        Returns: ids int64 [n, k], -1 where fewer may be found, and scores float32 [n, k].
        """
        found = [self._best(query, k) for query in range(start, stop)]
        ids = np.stack([ids for ids, _ in found])
        return ids, np.stack([scores for _, scores in found])

    def _best(self, query: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores = self._bm25.get_scores(self._documents[query]).astype(np.float32)
        scores[slice(*self._hidden[query])] = -np.inf
        best = np.argsort(-scores, kind="stable")[:k]
        return np.where(np.isneginf(scores[best]), -1, best), scores[best]
