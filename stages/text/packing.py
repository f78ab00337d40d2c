"""Orders segments so that neighbours resemble each other (Zhong et al. 2022, Algorithm 1)."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np
from scipy.sparse import csr_array

PAIRS = 8192
"""Pairs of segments compared at a time."""


@dataclass(frozen=True)
class Chain:
    """An order of all segments, each once."""

    order: np.ndarray
    """Segment ids, int64 [S]."""
    rank: np.ndarray
    """Rank of a segment among the matches of its predecessor, 0 for the best, int64 [S - 1]; -1: no
    match was free.
    """


class DocumentsApart:
    """Keeps segments of one document apart in a chain.

    A segment may follow if it shares no document with the last `reach` segments.
    """

    def __init__(self, spans: np.ndarray, reach: int) -> None:
        """`spans`: the first and the last document of each segment, int64 [S, 2]."""
        self._spans = spans.tolist()
        self._reach = reach
        self._near = np.zeros(spans.max() + 1, np.int64)
        self._last: deque[int] = deque()

    @property
    def groups(self) -> np.ndarray:
        """Group number of each segment, int64 [S]. Segments of the same documents share a group:
        they are allowed at the same times."""
        return np.unique(self._spans, axis=0, return_inverse=True)[1].reshape(-1)

    def allows(self, segment: int) -> bool:
        """Whether the segment may come next."""
        first, last = self._spans[segment]
        return not self._near[first : last + 1].any()

    def visit(self, segment: int) -> None:
        """Record that the segment came next."""
        self._last.append(segment)
        self._count(segment, 1)
        if len(self._last) > self._reach:
            self._count(self._last.popleft(), -1)

    def _count(self, segment: int, by: int) -> None:
        first, last = self._spans[segment]
        self._near[first : last + 1] += by


def chain(
    matches: np.ndarray, permutation: np.ndarray, documents: DocumentsApart | None = None
) -> Chain:
    """Algorithm 1: a segment is followed by its best free match, else by a random free segment.

    Args:
        matches: ids [S, k] of each segment's matches, the best first; -1 for none.
        permutation: segment ids in random order [S]; a random free segment is the next free one in
        it.
        documents: decides which segments may follow; if no free one may, the next free one does.
            None: any may.
    """
    allows = (lambda segment: True) if documents is None else documents.allows
    groups = np.zeros(len(matches), np.int64) if documents is None else documents.groups
    is_free = np.ones(len(matches) + 1, bool)
    is_free[-1] = False  # index of a match of -1
    random = _RandomFree(permutation, is_free, groups)

    order = np.empty(len(matches), np.int64)
    rank = np.full(len(matches) - 1, -1, np.int64)
    order[0] = permutation[0]
    for step in range(len(rank)):
        segment = order[step]
        is_free[segment] = False
        if documents is not None:
            documents.visit(segment)

        candidates = matches[segment]
        for place in np.flatnonzero(is_free[candidates]):
            if allows(candidates[place]):
                rank[step] = place
                order[step + 1] = candidates[place]
                break
        else:
            order[step + 1] = random.next(allows)
    return Chain(order, rank)


class _RandomFree:
    """The free segments of a permutation, in its order.

    Only the first segment of each group is checked, because a group is allowed as a whole. Few
    groups are excluded at a time: those near the last segments in the text. So a document of many
    segments is skipped at once.
    """

    def __init__(self, permutation: np.ndarray, free: np.ndarray, groups: np.ndarray) -> None:
        """`groups`: group of each segment, int64 [S]."""
        self._permutation = permutation.tolist()
        self._free = free

        # the places of each group in the permutation, rising
        places_by_group = groups[permutation].argsort(kind="stable")
        sizes = np.bincount(groups)
        borders = np.cumsum(sizes)[:-1]
        self._places: list[Iterator[int]] = []
        for places in np.split(places_by_group, borders):
            self._places.append(iter(places.tolist()))

        # a heap of the first free place of each group
        self._first = [(next(places), group) for group, places in enumerate(self._places)]
        heapify(self._first)

    def next(self, allows: Callable[[int], bool]) -> int:
        """The first segment that may follow; if none may, the first free one."""
        skipped = list[tuple[int, int]]()
        while self._skip_taken():
            first_place, _ = self._first[0]
            if allows(self._permutation[first_place]):
                break
            skipped.append(heappop(self._first))
        place, _ = self._first[0] if self._first else skipped[0]

        # Skipped segments may follow later.
        for segment in skipped:
            heappush(self._first, segment)
        return self._permutation[place]

    def _skip_taken(self) -> bool:
        """Move the first place to a free segment. Returns: whether there is one."""
        while self._first and not self._free[self._permutation[self._first[0][0]]]:
            _, group = self._first[0]
            place = next(self._places[group], None)
            if place is None:
                heappop(self._first)
            else:
                heapreplace(self._first, (place, group))
        return bool(self._first)


def overlap(counts: csr_array, order: np.ndarray) -> float:
    """Mean share of a segment's distinct terms that also occur in the next segment of an order.

    Args:
        counts: counts of each term in each segment [S, V].
        order: segment ids, at least two.

    The second segment holds one of the two terms of the first. The third holds none of the
    second's:

    >>> overlap(csr_array([[1, 2, 0], [0, 1, 0], [0, 0, 3]]), np.array([0, 1, 2]))
    0.25
    """
    ones = np.ones(counts.nnz, bool)
    has_term = csr_array((ones, counts.indices, counts.indptr), shape=counts.shape)
    shares = []
    num_pairs = len(order) - 1
    for start in range(0, num_pairs, PAIRS):
        segments = order[start : start + PAIRS + 1]
        terms = has_term[segments[:-1]]
        next_terms = has_term[segments[1:]]
        shared_terms = terms * next_terms
        # differences of row pointers are numbers of terms
        num_shared = np.diff(shared_terms.indptr)
        num_terms = np.diff(terms.indptr)
        shares.append(num_shared / num_terms)
    return float(np.concatenate(shares).mean())


def document_spans(doc_offsets: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """The first and the last document with a token in each segment, int64 [S, 2].

    Args:
        doc_offsets: int64 [D + 1]: document i is the tokens [doc_offsets[i], doc_offsets[i+1]).
        segments: int64 [S + 1], likewise for segments.

    Documents of three and five tokens, segments of two: the second spans both documents.

    >>> document_spans(np.array([0, 3, 8]), np.arange(0, 9, 2)).tolist()
    [[0, 0], [0, 1], [1, 1], [1, 1]]
    """
    ends = np.stack((segments[:-1], segments[1:] - 1), axis=1)
    return (np.searchsorted(doc_offsets, ends, side="right") - 1).astype(np.int64)


def sharing(spans: np.ndarray) -> np.ndarray:
    """Range [start, stop) of segments that share a document with each segment, itself included;
    int64 [S, 2].

    >>> sharing(np.array([[0, 0], [0, 1], [1, 1], [1, 1]])).tolist()
    [[0, 2], [0, 4], [1, 4], [1, 4]]
    """
    first, last = spans.T
    return np.stack(
        [np.searchsorted(last, first, side="left"), np.searchsorted(first, last, side="right")],
        axis=1,
    )


def same_document(spans: np.ndarray, order: np.ndarray) -> float:
    """Share of neighbours in an order that hold parts of the same document."""
    before = spans[order[:-1]]
    after = spans[order[1:]]
    return float(((before[:, 0] <= after[:, 1]) & (after[:, 0] <= before[:, 1])).mean())
