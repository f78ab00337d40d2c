"""BM25 search for many segments at once: blocks of queries are multiplied by blocks of documents.

Terms that occur in many documents are multiplied as dense matrices, all others as sparse ones.
Scores are summed in float64 and compared as float32, so the order of summation does not affect
ranks. Ties go to the smaller id. The package rank-bm25 finds the same matches one query at a time.
It serves small corpora and comparison.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from stages.threads import slices, thread_pool


@dataclass(frozen=True)
class Scoring:
    """A variant of BM25: score(q, d) = Σ over terms t of q, with repetition, of idf(t) ·
    saturation(t in d).
    """

    k1: float
    b: float
    gain: float
    """Limit of the saturation as a term is repeated. It does not change the ranking."""
    idf: Callable[[np.ndarray, int], np.ndarray]
    """(documents with each term, all at least 1; number of all documents) -> weight of each term,
    float64.
    """
    floor: float
    """A match must have a higher score than this."""

    def saturation(self, tf: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Contribution of a term to a document's score, divided by its idf.

        Args:
            tf: how often the term is in the document, at least 1.
            length: length of the document over the mean length.
        """
        return self.gain * tf / (tf + self.k1 * (1 - self.b + self.b * length))


def lucene_idf(holding: np.ndarray, documents: int) -> np.ndarray:
    """ln(1 + (N - n + 1/2) / (n + 1/2)), never negative.

    A term in every document has the smallest weight, a term in none the largest:

    >>> lucene_idf(np.array([9, 0]), 9).round(2).tolist()
    [0.05, 3.0]
    """
    return np.log1p((documents - holding + 0.5) / (holding + 0.5))


def okapi_idf(holding: np.ndarray, documents: int, epsilon: float = 0.25) -> np.ndarray:
    """ln((N - n + 1/2) / (n + 1/2)); terms in over half of the documents get `epsilon` times the
    mean (rank-bm25).

    >>> okapi_idf(np.array([9, 0]), 9).round(2).tolist()
    [0.0, 2.94]
    """
    idf = np.log(documents - holding + 0.5) - np.log(holding + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf)


SCORINGS = {
    "lucene": Scoring(k1=0.9, b=0.4, gain=1.0, idf=lucene_idf, floor=0.0),
    "okapi": Scoring(k1=1.5, b=0.75, gain=2.5, idf=okapi_idf, floor=-np.inf),
}
"""`lucene`: Lucene 8 and later with Pyserini's k1 and b and exact lengths; a match shares at least
one term.
`okapi`: rank-bm25's BM25Okapi, which ranks every document."""


BLOCK = 8192
"""Segments counted at a time."""


def term_counts(ids: Any, offsets: np.ndarray, terms: int) -> csr_array:
    """Counts [S, V] of segments, in the smallest unsigned type that holds the longest segment.

    Args:
        ids: token ids [T], an array or a Zarr array.
        offsets: int64 [S + 1], where each segment begins, and the end.
        terms: size of the vocabulary, V.

    >>> term_counts(np.array([1, 1, 0, 2]), np.array([0, 3, 4]), 3).toarray()
    array([[1, 2, 0],
           [0, 0, 1]], dtype=uint8)
    """
    sizes, blocks = np.diff(offsets), []
    longest = sizes.max()
    for start in range(0, len(sizes), BLOCK):
        part = offsets[start : start + BLOCK + 1]
        found = np.asarray(ids[int(part[0]) : int(part[-1])])
        if (
            sizes.min() == longest
        ):  # rows of one length are sorted here, many times as fast as by SciPy
            found = np.sort(found.reshape(-1, longest)).ravel()
        ones, begins = (
            np.ones(len(found), np.min_scalar_type(longest)),
            (part - part[0]).astype(np.int32),
        )
        block = csr_array((ones, found.astype(np.int32), begins), shape=(len(part) - 1, terms))
        block.sum_duplicates()
        blocks.append(block)
    return vstack(blocks, format="csr")


QUERIES, DOCUMENTS = 256, 8192
"""Rows and columns of a block of scores: 16 MB in float64."""
COMMON = 0.1
"""Share of documents with a term above which the dense product is faster."""


@dataclass(frozen=True)
class _Part:
    """Weights of documents `first`, `first` + 1, …"""

    first: int
    common: csr_array
    """[n, C], of the common terms only; made dense once per search."""
    rare: csr_array
    """[V, n], zero where a term is common."""


class Bm25Index:
    """Documents searched with each other as queries, all held in memory.

    Each term of each document takes 18 bytes: 6 for its count, 12 for its weight. A segment of 512
    words of WikiText holds about 230 terms: the 201,615 segments of WikiText-103 take 0.85 GB. A
    search adds up to 60 MB of scores per worker. The common terms of 8,192 documents and of all its
    queries are dense matrices, 8 bytes a cell.
    """

    def __init__(
        self, counts: csr_array, scoring: Scoring, hidden: np.ndarray | None = None
    ) -> None:
        """Args:
        counts: counts of each term in each document, integers [S, V].
        scoring: the variant of BM25.
        hidden: range [start, stop) of documents that each one must not find, int64 [S, 2]; None:
        itself.
        """
        self.counts, self.scoring = counts, scoring
        self.hidden = itself(counts.shape[0]) if hidden is None else hidden
        holding = np.bincount(counts.indices, minlength=counts.shape[1])
        self._common = np.flatnonzero(holding > COMMON * counts.shape[0])
        self._idf = np.zeros(counts.shape[1])
        self._idf[holding > 0] = scoring.idf(holding[holding > 0], counts.shape[0])
        lengths = counts.sum(axis=1, dtype=np.int64)
        self._lengths = lengths / lengths.mean()
        self._parts = [self._part(first) for first in range(0, counts.shape[0], DOCUMENTS)]

    def search(self, start: int, stop: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents for documents start .. stop - 1 as queries, the best first, without
        hidden ones.

        Returns: ids int64 [n, k], -1 where fewer match, and scores float32 [n, k].
        """
        return self.find(self.counts[start:stop], k, self.hidden[start:stop])

    def find(self, queries: csr_array, k: int, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents for other queries, whose terms are counted like those of documents.

        Args:
            queries: counts of each term in each query, integers [n, V].
            hidden: range [start, stop) of documents that each query must not find, int64 [n, 2].
        Returns: see `search`.
        """
        terms, n = queries.astype(np.float64), queries.shape[0]
        common = terms[:, self._common].toarray()
        ids, best = np.full((n, k), -1, np.int64), np.full((n, k), self.scoring.floor, np.float32)

        def merge(part: _Part, weights: np.ndarray, rows: slice) -> None:
            """Merge the documents of a part into the best of some queries; `weights`: common terms,
            [C, m].
            """
            scores = common[rows] @ weights
            scores += (terms[rows] @ part.rare).toarray()
            _hide(scores, hidden[rows] - part.first)
            _keep_best(ids[rows], best[rows], scores.astype(np.float32), part.first)

        with thread_pool() as share:
            for part in self._parts:
                share(partial(merge, part, part.common.toarray().T), slices(n, QUERIES))
        return ids, best

    def _part(self, first: int) -> _Part:
        counts = self.counts[first : first + DOCUMENTS].astype(np.float64)
        lengths = np.repeat(self._lengths[first : first + DOCUMENTS], np.diff(counts.indptr))
        counts.data = self._idf[counts.indices] * self.scoring.saturation(counts.data, lengths)
        common = counts[:, self._common]
        # Common terms are in the dense product already.
        counts.data[np.isin(counts.indices, self._common)] = 0
        counts.eliminate_zeros()
        return _Part(first, common, counts.T.tocsr())


def itself(documents: int) -> np.ndarray:
    """Range [start, stop) of each document by itself, int64 [S, 2]."""
    return np.arange(documents)[:, None] + np.array([0, 1])


def _hide(scores: np.ndarray, hidden: np.ndarray) -> None:
    """Exclude the documents that each row must not find; `hidden`: columns [start, stop), some
    outside the scores.
    """
    start, stop = hidden.clip(0, scores.shape[1]).T
    for row in np.flatnonzero(start < stop):
        scores[row, start[row] : stop[row]] = -np.inf


def _keep_best(ids: np.ndarray, best: np.ndarray, scores: np.ndarray, first: int) -> None:
    """Merge scores [n, m] of documents `first`, … into the k best so far of every row, in place.

    Documents come in rising order. So among equal scores an earlier place means a smaller id.
    """
    k, columns = best.shape[1], np.arange(first, first + scores.shape[1])
    for row in np.flatnonzero(scores.max(axis=1) > best[:, -1]):
        pool = np.concatenate([best[row], scores[row]])
        # Find the k-th largest score first: among documents with exactly this score, the smaller
        # ids win.
        last = np.partition(pool, -k)[-k]
        above = np.flatnonzero(pool > last)
        chosen = np.concatenate([above, np.flatnonzero(pool == last)[: k - len(above)]])
        chosen = chosen[np.argsort(-pool[chosen], kind="stable")]
        ids[row], best[row] = np.concatenate([ids[row], columns])[chosen], pool[chosen]


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
        ids, scores = np.empty((stop - start, k), np.int64), np.empty((stop - start, k), np.float32)
        for row, query in enumerate(range(start, stop)):
            found = self._bm25.get_scores(self._documents[query]).astype(np.float32)
            found[slice(*self._hidden[query])] = -np.inf
            best = np.argsort(-found, kind="stable")[:k]
            ids[row], scores[row] = np.where(np.isneginf(found[best]), -1, best), found[best]
        return ids, scores
