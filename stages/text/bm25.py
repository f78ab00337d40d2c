"""BM25 search for many segments at once: blocks of queries are multiplied by blocks of documents.

Terms that occur in many documents are multiplied as dense matrices, all others as sparse ones.
Scores are summed in float64 and compared as float32, so the order of summation does not affect
ranks. Ties go to the smaller id. `rank_bm25` finds the same matches one query at a time. It serves
small corpora and comparison.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.threads import slices, thread_pool

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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


def term_counts(ids: Any, offsets: np.ndarray, terms: int) -> "csr_array":
    """Counts [S, V] of segments, in the smallest unsigned type that holds the longest segment.

    Args:
        ids: token ids [T], an array or a Zarr array.
        offsets: int64 [S + 1], where each segment begins, and the end.
        terms: size of the vocabulary, V.

    >>> term_counts(np.array([1, 1, 0, 2]), np.array([0, 3, 4]), 3).toarray()
    array([[1, 2, 0],
           [0, 0, 1]], dtype=uint8)
    """
    # Evaluations import this file, and most of them search for nothing by words.
    from scipy.sparse import csr_array, vstack

    lengths = np.diff(offsets)
    longest = lengths.max()
    equally_long = lengths.min() == longest
    count_type = np.min_scalar_type(longest)

    blocks = []
    for start in range(0, len(lengths), BLOCK):
        block_offsets = offsets[start : start + BLOCK + 1]
        first = int(block_offsets[0])
        last = int(block_offsets[-1])
        tokens = np.asarray(ids[first:last])
        if equally_long:
            # Rows of one length are sorted here, many times as fast as by SciPy.
            tokens = np.sort(tokens.reshape(-1, longest)).ravel()

        # Each token is an entry of 1. The sum of duplicates makes them counts.
        ones = np.ones(len(tokens), count_type)
        row_starts = (block_offsets - first).astype(np.int32)
        shape = (len(block_offsets) - 1, terms)
        block = csr_array((ones, tokens.astype(np.int32), row_starts), shape=shape)
        block.sum_duplicates()
        blocks.append(block)
    return vstack(blocks, format="csr")


QUERIES = 256
"""Rows of a block of scores."""
DOCUMENTS = 8192
"""Columns of a block of scores, which takes 16 MB in float64."""
COMMON = 0.1
"""Share of documents with a term above which the dense product is faster."""


@dataclass(frozen=True)
class _Part:
    """Weights of documents `first`, `first` + 1, …"""

    first: int
    common: "csr_array"
    """[n, C], of the common terms only; made dense once per search."""
    rare: "csr_array"
    """[V, n], zero where a term is common."""


class Bm25Index:
    """Documents searched with each other as queries, all held in memory.

    Each term of each document takes 18 bytes: 6 for its count, 12 for its weight. A segment of 512
    words of WikiText holds about 230 terms: the 201,615 segments of WikiText-103 take 0.85 GB. A
    search adds up to 60 MB of scores per worker. The common terms of 8,192 documents and of all its
    queries are dense matrices, 8 bytes a cell.
    """

    def __init__(
        self, counts: "csr_array", scoring: Scoring, hidden: np.ndarray | None = None
    ) -> None:
        """Weigh the terms of all documents.

        Args:
            counts: counts of each term in each document, integers [S, V].
            scoring: the variant of BM25.
            hidden: range [start, stop) of documents that each one must not find, int64 [S, 2];
                None: itself.
        """
        num_documents, num_terms = counts.shape
        self.counts = counts
        self.scoring = scoring
        self.hidden = itself(num_documents) if hidden is None else hidden

        # The counts hold no zeros, so each entry is a document with the term.
        documents_with = np.bincount(counts.indices, minlength=num_terms)
        occurs = documents_with > 0
        self._common = np.flatnonzero(documents_with > COMMON * num_documents)
        self._idf = np.zeros(num_terms)
        self._idf[occurs] = scoring.idf(documents_with[occurs], num_documents)

        lengths = counts.sum(axis=1, dtype=np.int64)
        self._lengths = lengths / lengths.mean()
        firsts = range(0, num_documents, DOCUMENTS)
        self._parts = [self._part(first) for first in firsts]

    def search(self, start: int, stop: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents for documents start .. stop - 1 as queries, the best first, without
        hidden ones.

        Returns: ids int64 [n, k], -1 where fewer match, and scores float32 [n, k].
        """
        return self.find(self.counts[start:stop], k, self.hidden[start:stop])

    def find(
        self, queries: "csr_array", k: int, hidden: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents for other queries, whose terms are counted like those of documents.

        Args:
            queries: counts of each term in each query, integers [n, V].
            hidden: range [start, stop) of documents that each query must not find, int64 [n, 2].
        Returns: see `search`.
        """
        num_queries = queries.shape[0]
        terms = queries.astype(np.float64)
        common_terms = terms[:, self._common].toarray()

        # An empty place holds the floor, which only a match can exceed.
        ids = np.full((num_queries, k), -1, np.int64)
        best = np.full((num_queries, k), self.scoring.floor, np.float32)

        def merge(part: _Part, weights: np.ndarray, rows: slice) -> None:
            """Merge the documents of a part into the best of some queries; `weights`: common terms,
            [C, m].
            """
            # [q, m]: a dense product for common terms, a sparse one for rare ones
            scores = common_terms[rows] @ weights
            scores += (terms[rows] @ part.rare).toarray()
            hidden_in_part = hidden[rows] - part.first
            _hide(scores, hidden_in_part)
            _keep_best(ids[rows], best[rows], scores.astype(np.float32), part.first)

        # Each worker has its own rows of `ids` and `best`, so none needs a lock.
        with thread_pool() as share:
            for part in self._parts:
                weights = part.common.toarray().T
                share(partial(merge, part, weights), slices(num_queries, QUERIES))
        return ids, best

    def _part(self, first: int) -> _Part:
        """Weights of up to DOCUMENTS documents from `first` on."""
        documents = slice(first, first + DOCUMENTS)
        weights = self.counts[documents].astype(np.float64)  # [n, V], still counts

        # In CSR, `data` and `indices` hold the count and the term of each entry, and `indptr` where
        # documents begin: so the length of a document is repeated for each of its entries.
        num_entries = np.diff(weights.indptr)
        lengths = np.repeat(self._lengths[documents], num_entries)
        saturation = self.scoring.saturation(weights.data, lengths)
        idf = self._idf[weights.indices]
        weights.data = idf * saturation
        common = weights[:, self._common]

        # A term is either common, for a dense product, or rare, for a sparse one.
        is_common = np.isin(weights.indices, self._common)
        weights.data[is_common] = 0
        weights.eliminate_zeros()
        rare = weights.T.tocsr()
        return _Part(first, common, rare)


def itself(documents: int) -> np.ndarray:
    """Range [start, stop) of each document by itself, int64 [S, 2]."""
    return np.arange(documents)[:, None] + np.array([0, 1])


def _hide(scores: np.ndarray, hidden: np.ndarray) -> None:
    """Exclude the documents that each row must not find; `hidden`: columns [start, stop), some
    outside the scores.
    """
    starts, stops = hidden.clip(0, scores.shape[1]).T
    for row in np.flatnonzero(starts < stops):
        scores[row, starts[row] : stops[row]] = -np.inf


def _keep_best(ids: np.ndarray, best: np.ndarray, scores: np.ndarray, first: int) -> None:
    """Merge scores [n, m] of documents `first`, … into the k best so far of every row, in place.

    Documents come in rising order. So among equal scores the earlier one has the smaller id.
    """
    k = best.shape[1]
    num_documents = scores.shape[1]
    documents = np.arange(first, first + num_documents)

    # Only rows where a new score beats the last of the k best can change.
    is_better = scores.max(axis=1) > best[:, -1]
    for row in np.flatnonzero(is_better):
        candidate_scores = np.concatenate([best[row], scores[row]])
        candidate_ids = np.concatenate([ids[row], documents])
        chosen = _largest(candidate_scores, k)
        ids[row] = candidate_ids[chosen]
        best[row] = candidate_scores[chosen]


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """Indices [k] of the k largest scores [m], the largest first; among equal ones, the earlier.

    >>> _largest(np.array([2.0, 5.0, 2.0, 7.0, 2.0]), 4).tolist()
    [3, 1, 0, 2]
    """
    # The k-th largest score is a threshold: all scores above it are chosen, ...
    threshold = np.partition(scores, -k)[-k]
    above = np.flatnonzero(scores > threshold)

    # ... and the first of those equal to it take the places that are left.
    equal = np.flatnonzero(scores == threshold)
    chosen = np.concatenate([above, equal[: k - len(above)]])

    # A stable order leaves equal scores as they are: both parts rise.
    order = np.argsort(-scores[chosen], kind="stable")
    return chosen[order]
