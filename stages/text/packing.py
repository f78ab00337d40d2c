"""Order segments so that neighbours resemble each other (Zhong et al. 2022, Algorithm 1)."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

PAIRS = 8192
"""Pairs of segments compared at a time."""


@dataclass(frozen=True)
class Chain:
    """Every segment once."""

    order: np.ndarray
    """Segment ids, int64 [S]."""
    rank: np.ndarray
    """Which match of its predecessor a segment is, 0 for the best, int64 [S - 1]; -1 where none was free."""

    @property
    def followed(self) -> np.ndarray:
        """Places in the order from which a match was followed."""
        return np.flatnonzero(self.rank >= 0)


def chain(matches: np.ndarray, permutation: np.ndarray) -> Chain:
    """Algorithm 1: after a segment comes the best of its matches that is still free, else a random free segment.

    Args:
        matches: ids [S, k] of each segment's matches, the best first; -1 for none.
        permutation: segment ids in random order [S]; a random free one is the next free of these.
    """
    free = np.ones(len(matches) + 1, bool)
    free[-1] = False  # where a match of -1 points
    random = (segment for segment in permutation if free[segment])
    order, rank = np.empty(len(matches), np.int64), np.full(len(matches) - 1, -1, np.int64)
    order[0] = next(random)
    for step in range(len(rank)):
        free[order[step]] = False
        candidates = matches[order[step]]
        still_free = np.flatnonzero(free[candidates])
        if len(still_free):
            rank[step] = still_free[0]
        order[step + 1] = candidates[rank[step]] if len(still_free) else next(random)
    return Chain(order, rank)


def overlap(counts: csr_array, order: np.ndarray) -> float:
    """Mean share of a segment's distinct terms that the next segment of an order also holds.

    Args:
        counts: how often each segment holds each term [S, V].
        order: segment ids, at least two.
    """
    held = csr_array((np.ones(counts.nnz, bool), counts.indices, counts.indptr), shape=counts.shape)
    shares = []
    for start in range(0, len(order) - 1, PAIRS):
        pair = order[start : start + PAIRS + 1]
        ours, theirs = held[pair[:-1]], held[pair[1:]]
        shares.append(np.diff((ours * theirs).indptr) / np.diff(ours.indptr))
    return float(np.concatenate(shares).mean())
