"""Sentences of a text that share the rarest tokens with others, by BM25."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from stages.text.bm25 import SCORINGS, Bm25Index, uneven_counts


class SimilarSentences:
    """Sentences that others are compared with, counted once."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> None:
        """Args:
        ids: token ids [T].
        offsets: int64 [D + 1]: sentence i is the tokens [offsets[i], offsets[i+1]), the last of which ends it.
        vocabulary: number of token types.
        """
        self._vocabulary = vocabulary
        self._index = Bm25Index(_counts(ids, offsets, vocabulary), SCORINGS["lucene"])

    def find(self, sentences: Sequence[np.ndarray], count: int, own: np.ndarray | None = None) -> np.ndarray:
        """The most similar sentences to each of some, the best first; equals by the smaller number.

        Args:
            sentences: tokens of each, the last of which ends it.
            own: int64 [n], the sentence that each may not find, which is itself; None: each may find all.
        Returns: numbers, int64 [n, count], -1 where fewer share a token.

        >>> held = SimilarSentences(np.array([1, 2, 0, 3, 0, 2, 0]), np.array([0, 3, 5, 7]), 4)
        >>> held.find([np.array([2, 0]), np.array([3, 0])], 2).tolist()
        [[2, 0], [1, -1]]
        """
        offsets = np.append(0, np.cumsum([len(one) for one in sentences]))
        counts = _counts(np.concatenate(sentences), offsets, self._vocabulary)
        hidden = np.zeros((len(sentences), 2), np.int64) if own is None else own[:, None] + np.array([0, 1])
        return self._index.find(counts, count, hidden)[0]


def _counts(ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> csr_array:
    """Counts [D, V] of sentences without their ends."""
    kept = np.ones(len(ids), bool)
    kept[offsets[1:] - 1] = False
    return uneven_counts(ids[kept], offsets - np.arange(len(offsets)), vocabulary)
