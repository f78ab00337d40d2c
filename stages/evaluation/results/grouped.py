"""Counting of the tokens of many groups at once, with sorts in place of loops."""

from typing import NamedTuple

import numpy as np


def find(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`np.searchsorted` of values [n] in no order, int64 [n].

    Sorted first, since looking up neighbours after each other stays within the processor's cache.
    """
    order = np.argsort(values)
    places = np.empty(len(values), np.int64)
    places[order] = np.searchsorted(ascending, values[order])
    return places


class Ranks(NamedTuple):
    """Places of n values among equal ones."""

    rank: np.ndarray
    """int64 [n]: how many equal values are before each."""
    order: np.ndarray
    """int64 [n]: the values' indices, equal ones next to each other and in their order."""
    begins: np.ndarray
    """int64 [n]: for each of `order`, the index in it where its group begins."""


def ranks(values: np.ndarray) -> Ranks:
    """Ranks of integers [n] among equal ones.

    >>> ranks(np.array([7, 3, 7, 7])).rank.tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    heads = np.flatnonzero(np.diff(values[order], prepend=values[order[:1]] - 1))
    begins = np.repeat(heads, np.diff(heads, append=len(values)))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - begins
    return Ranks(rank, order, begins)


class Grouped:
    """Members of groups, each with a place."""

    def __init__(self, groups: np.ndarray, places: np.ndarray, size: int) -> None:
        """Sort n members.

        Args:
            groups: int64 [n], not negative. places: int64 [n], below `size`; groups times size fits into 63 bits.
        """
        self._size = size
        self._sorted = np.sort(groups * size + places)

    def between(self, groups: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """How many members of each group have a place lo <= place < hi, int64 [m].

        >>> grouped = Grouped(np.array([0, 1, 0]), np.array([0, 1, 2]), 3)
        >>> grouped.between(np.array([0, 1]), np.array([1, 0]), np.array([3, 1])).tolist()
        [1, 0]
        """
        return self._before(groups, hi) - self._before(groups, lo)

    def _before(self, groups: np.ndarray, edge: np.ndarray) -> np.ndarray:
        """Members of smaller groups, and those of each group with a place below an edge."""
        return find(self._sorted, groups * self._size + edge.clip(0, self._size))


def coverage(groups: np.ndarray, of: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many intervals hold each of T tokens, whose place is its index, int64 [T].

    Args:
        groups: int64 [T], of each token. of: int64 [m], the group whose tokens an interval may hold.
        begin, end: int64 [m], from 0 to T: an interval holds begin <= index < end; none where end <= begin.

    >>> coverage(np.array([0, 1, 0]), np.array([0, 0]), np.array([0, 2]), np.array([2, 3])).tolist()
    [1, 0, 1]
    """
    size, held = len(groups) + 1, begin < end
    keys = groups * size + np.arange(len(groups))
    order = np.argsort(keys)
    opened, closed = (find(keys[order], of[held] * size + edge[held]) for edge in (begin, end))
    covered = np.empty(len(groups), np.int64)
    covered[order] = np.cumsum(np.bincount(opened, None, size) - np.bincount(closed, None, size))[:-1]
    return covered
