"""Runs of tokens that stand in two texts, found by hashes of windows.

Shapes: T tokens of a text, D documents, W windows that are looked for, R ranges.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

AT_ONCE = 1 << 20
"""Tokens of a text that are hashed at a time."""
BASE = 0x9E3779B97F4A7C15
"""Base of the hash, an odd number, so that it has an inverse modulo 2^64."""
INVERSE = pow(BASE, -1, 1 << 64)
MIXER = np.uint64(0xD6E8FEB86659FD93)
"""Odd factor that spreads an id over the upper bits."""
SORTED_AT_ONCE = 1 << 16
"""Windows whose types of tokens are counted at a time."""
DIGEST_BITS = 20
"""First bits of a hash, by which most windows of a text are ruled out."""
TYPES = 5
"""A window needs one type of token for this number of its tokens.

Rows of dashes and blanks are no copies.
"""


def window_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """Hashes of all windows of `length` tokens, uint64 [T - length + 1].

    The hash of a window is a polynomial modulo 2^64, whose coefficients are its mixed ids. All are
    computed from one running sum, so that the cost does not depend on the length.
    Source: Karp and Rabin 1987, Efficient randomized pattern-matching algorithms.

    >>> hashes = window_hashes(np.array([7, 1, 2, 9, 1, 2]), 2)
    >>> (hashes[1] == hashes[4], len(set(hashes.tolist())))
    (np.True_, 4)
    """
    count = len(ids) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    mixed = (ids.astype(np.uint64) + np.uint64(1)) * MIXER
    # Small ids would leave the upper bits of a short window empty.
    mixed ^= mixed >> np.uint64(32)

    terms = mixed * _powers(BASE, len(ids))
    sums = np.zeros(len(ids) + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    # The terms of the window at position t have the factors BASE^t, BASE^(t + 1), …: INVERSE^t makes
    # equal windows equal. Sums and products overflow on purpose, which is modulo 2^64.
    differences = sums[length:] - sums[:count]
    return differences * _powers(INVERSE, count)


def _powers(base: int, count: int) -> np.ndarray:
    """base^0 to base^(count - 1) modulo 2^64, uint64 [count]."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.multiply.accumulate(factors)


@dataclass(frozen=True)
class Windows:
    """Windows that are looked for, all of `length` tokens, sorted by their hashes.

    `hashes` uint64 [W], all different. `positions` int64 [W]: where each window begins in `text`,
    integers [N].
    """

    hashes: np.ndarray
    positions: np.ndarray
    text: np.ndarray
    length: int

    @classmethod
    def of(cls, texts: Sequence[np.ndarray], length: int) -> Self:
        """All windows of `length` tokens of some texts, without those of few types of tokens."""
        # No texts, or none of `length` tokens, must still make arrays of integers.
        none = np.zeros(0, np.int64)
        joined = np.concatenate([none, *texts])
        borders = np.cumsum([0, *map(len, texts)])

        # No window reaches beyond its text.
        position_ranges = [none]
        for start, stop in pairwise(borders):
            position_ranges.append(np.arange(start, max(start, stop - length + 1)))
        positions = np.concatenate(position_ranges)
        positions = positions[_are_varied(joined, positions, length)]

        # Of equal windows, the first one is kept.
        hashes = window_hashes(joined, length)[positions]
        hashes, first = np.unique(hashes, return_index=True)
        return cls(hashes, positions[first], joined, length)

    @cached_property
    def _digests(self) -> np.ndarray:
        """Whether a window has a hash with these first bits, bool [2^DIGEST_BITS]."""
        occurs = np.zeros(1 << DIGEST_BITS, bool)
        occurs[_digest(self.hashes)] = True
        return occurs

    def starts_in(self, ids: np.ndarray) -> np.ndarray:
        """Positions in a text where one of the windows begins, rising, int64."""
        # The table of digests rules out most positions, at one look each.
        hashes = window_hashes(ids, self.length)
        starts = np.flatnonzero(self._digests[_digest(hashes)])
        start_hashes = hashes[starts]

        # The window with the hash of each start, if there is one.
        window = np.searchsorted(self.hashes, start_hashes)
        window = window.clip(max=len(self.hashes) - 1)
        is_same = self.hashes[window] == start_hashes
        starts = starts[is_same]
        positions = self.positions[window[is_same]]

        # Equal hashes are no proof, so tokens are compared.
        for offset in range(self.length):
            is_same = self.text[positions + offset] == ids[starts + offset]
            starts = starts[is_same]
            positions = positions[is_same]
        return starts


def _digest(hashes: np.ndarray) -> np.ndarray:
    """The first DIGEST_BITS bits of hashes, int64."""
    return (hashes >> np.uint64(64 - DIGEST_BITS)).astype(np.int64)


def _are_varied(text: np.ndarray, positions: np.ndarray, length: int) -> np.ndarray:
    """Whether the windows at these positions have enough types of tokens, bool [W]."""
    is_varied = np.zeros(len(positions), bool)
    offsets = np.arange(length)
    for start in range(0, len(positions), SORTED_AT_ONCE):
        part = slice(start, start + SORTED_AT_ONCE)
        tokens = text[positions[part, None] + offsets]  # [part, length]
        tokens.sort(axis=1)
        # Sorted tokens change once for each type but the first.
        changes = np.count_nonzero(np.diff(tokens, axis=1), axis=1)
        is_varied[part] = (1 + changes) * TYPES >= length
    return is_varied


def shared_ranges(ids: Any, offsets: np.ndarray, windows: Windows) -> np.ndarray:
    """Ranges of a text's tokens that windows cover, each within one document; int64 [R, 2].

    Args:
        ids: integers [T], an array in memory, or one that is read when sliced.
        offsets: int64 [D + 1], the start of each document, and the end.

    >>> sought = Windows.of([np.array([1, 2, 3, 4])], 3)
    >>> shared_ranges(np.array([9, 1, 2, 3, 4, 1, 2, 3]), np.array([0, 6, 8]), sought).tolist()
    [[1, 5]]
    """
    if not len(windows.hashes):
        return np.zeros((0, 2), np.int64)
    starts = np.concatenate([np.zeros(0, np.int64), *_starts(ids, windows)])
    stops = starts + windows.length

    # A match that reaches into the next document is none.
    document = np.searchsorted(offsets, starts, side="right") - 1
    is_within = stops <= offsets[document + 1]
    ranges = np.stack([starts, stops], axis=1)
    return joined_ranges([ranges[is_within]], offsets)


def joined_ranges(ranges: Sequence[np.ndarray], offsets: np.ndarray) -> np.ndarray:
    """The union of ranges, each within one document, as few ranges; int64 [R, 2], rising.

    >>> joined_ranges([np.array([[0, 3], [4, 6]]), np.array([[2, 4], [6, 8]])], np.array([0, 6, 9])).tolist()
    [[0, 6], [6, 8]]
    """
    all_ranges = np.concatenate([np.zeros((0, 2), np.int64), *ranges])
    if not len(all_ranges):
        return all_ranges
    by_start = np.argsort(all_ranges[:, 0], kind="stable")
    starts, stops = all_ranges[by_start].T

    # A range opens a new one if none before it reaches it within its document.
    reached = np.maximum.accumulate(stops)
    document = np.searchsorted(offsets, starts, side="right")
    has_gap = starts[1:] > reached[:-1]
    is_next_document = np.diff(document) > 0
    is_separate = has_gap | is_next_document

    # It ends where the next one opens: what was reached until there is its end.
    opens = np.append(True, is_separate)
    closes = np.append(is_separate, True)
    return np.stack([starts[opens], reached[closes]], axis=1)


def _starts(ids: Any, windows: Windows) -> Iterator[np.ndarray]:
    """Positions where windows begin, for each part of a text."""
    for first in range(0, ids.shape[0], AT_ONCE):
        # A window may begin in this part and end in the next one.
        block = np.asarray(ids[first : first + AT_ONCE + windows.length - 1])
        yield first + windows.starts_in(block)
