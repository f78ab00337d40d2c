"""The longest matches of a context among the sorted contexts of a text: their places, and the
symbols they share.

Shapes: N sorted contexts, n queries, k matches for each query.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.suffixes.text import LONGEST, Text, sort_contexts

NUMBERS_AT_ONCE = 1 << 18
"""Numbers in the working arrays of one part of the queries, small enough for the processor's cache.
"""


class SuffixRange(NamedTuple):
    """Places of n contexts in the order. `place` int64 [n]: the first context that is not smaller.
    `before` and `after` uint8 [n]: symbols shared with the context before that place, and with the
    one at it."""

    place: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @property
    def longest(self) -> np.ndarray:
        """Length of the longest match of each context in symbols, uint8 [n]."""
        return np.maximum(self.before, self.after)

    def taken(self, part: np.ndarray) -> "SuffixRange":
        """The entries at the indices `part`."""
        return SuffixRange(self.place[part], self.before[part], self.after[part])


class LongestMatches(NamedTuple):
    """The best matches, longest first. `places` int64 [n, k]: tokens of the text, -1 where missing.
    `shared` uint8 [n, k]: symbols that their contexts share with the query, 0 where missing."""

    places: np.ndarray
    shared: np.ndarray


class _State(NamedTuple):
    """State of a binary search: low <= place <= high, and symbols shared with the contexts at low -
    1 and at high.
    """

    low: np.ndarray
    high: np.ndarray
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True)
class SortedContexts:
    """A text with the output of `sort_contexts`: `order`, integers [N], and `shared`, uint8 [N]."""

    text: Text
    order: np.ndarray
    shared: np.ndarray

    @classmethod
    def of(cls, text: Text) -> "SortedContexts":
        """Sort all contexts of a text at once."""
        return cls(text, *sort_contexts(text, np.arange(len(text))))

    def locate(self, asked: Text, places: np.ndarray) -> SuffixRange:
        """Find the places of contexts in this order by binary search; both texts have one
        vocabulary; places int64 [n].

        Equal contexts of this text are ordered by place; those of another text come before them.
        All contexts of an interval share the symbols that both ends share with the query, so
        comparing begins after these.
        Source: Manber and Myers 1993, Suffix Arrays, section 2.
        """
        n = len(places)
        state = _State(
            np.zeros(n, np.int64),
            np.full(n, len(self.order)),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
        )
        by = np.argsort(
            asked.words(places, 0), kind="stable"
        )  # similar queries in a row read the same memory
        asking = by
        while len(asking):
            asking = asking[state.low[asking] < state.high[asking]]
            middle = (state.low[asking] + state.high[asking]) // 2
            depth = np.minimum(state.before[asking], state.after[asking])
            smaller, shared = self._compare(
                asked, places[asking], self.order[middle].astype(np.int64), depth
            )
            up, down = asking[smaller], asking[~smaller]
            state.low[up], state.before[up] = middle[smaller] + 1, shared[smaller]
            state.high[down], state.after[down] = middle[~smaller], shared[~smaller]
        return SuffixRange(state.low, state.before.astype(np.uint8), state.after.astype(np.uint8))

    def _compare(
        self, asked: Text, places: np.ndarray, others: np.ndarray, depth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether contexts of this text are smaller than the queries, and the number of symbols
        that they share.

        Args:
            others: places in this text, [n].
            depth: number of symbols known to be shared, [n]; changed in place.
        """
        smaller, open_ = np.zeros(len(places), bool), np.arange(len(places))
        while len(open_):
            mine, theirs = (
                text.words(some[open_], depth[open_])
                for text, some in ((asked, places), (self.text, others))
            )
            equal = self.text.equal_symbols(mine, theirs)
            smaller[open_] = theirs < mine
            whole = equal == self.text.per_word
            depth[open_] += equal
            open_ = open_[whole]
            ended = asked.known[places[open_]] < depth[open_]
            done = open_[ended]
            depth[done] = asked.known[places[done]].astype(np.int64) + 1
            smaller[done] = others[done] < places[done] if asked is self.text else False
            open_ = open_[~ended]
        return smaller, np.minimum(depth, LONGEST)

    def best(
        self,
        located: SuffixRange,
        k: int,
        *,
        within: np.ndarray | None = None,
        without: np.ndarray | None = None,
    ) -> LongestMatches:
        """The k tokens whose contexts share most symbols; ties go to later tokens, among the
        contexts near the place.

        Args:
            within: int64 [n, 2], range of tokens that may be found; None: all tokens.
            without: int64 [n, 2], range of tokens that may not be found; None: no tokens.

        In "1 2 3 1 2 4" two tokens follow "1 2"; the first also shares the border before it:

        >>> text = Text.of(np.array([1, 2, 3, 1, 2, 4]), np.array([0, 6]), vocabulary=5)
        >>> asked, contexts = Text.of(np.array([1, 2, 0]), np.array([0, 3]), vocabulary=5), SortedContexts.of(text)
        >>> found = contexts.best(contexts.locate(asked, np.array([2])), k=2)
        >>> text.ids[found.places].tolist(), found.shared.tolist()
        ([[3, 4]], [[3, 2]])
        """
        n = len(located.place)
        found = LongestMatches(np.full((n, k), -1), np.zeros((n, k), np.uint8))
        open_, width = np.arange(n if len(self.order) else 0), k
        while len(open_):
            # double the width only for queries whose best matches may be farther away
            again = [np.zeros(0, np.int64)]
            step = max(1, NUMBERS_AT_ONCE // width)
            for begin in range(0, len(open_), step):
                part = open_[begin : begin + step]
                limits = [None if one is None else one[part] for one in (within, without)]
                some, complete = self._nearby(located.taken(part), k, width, *limits)
                found.places[part], found.shared[part] = some
                again.append(part[~complete])
            open_, width = np.concatenate(again), 2 * width
        return found

    def _nearby(
        self,
        at: SuffixRange,
        k: int,
        width: int,
        within: np.ndarray | None,
        without: np.ndarray | None,
    ) -> tuple[LongestMatches, np.ndarray]:
        """The k best of `width` contexts on each side, and bool [n]: True if no context farther
        away can be better.
        """
        sides = [
            self._side(at.place - 1, at.before, width, -1),
            self._side(at.place, at.after, width, 1),
        ]
        places, shared = (np.concatenate(both, axis=1) for both in zip(*sides, strict=True))
        ends = np.maximum(*(side[1][:, -1] for side in sides))
        for limits, inside in ((within, True), (without, False)):
            if limits is not None:
                held = (places >= limits[:, :1]) & (places < limits[:, 1:])
                shared[held != inside] = 0
        by = np.argsort(-places, axis=1, kind="stable")
        falling = 255 - np.take_along_axis(shared, by, 1)  # 8 bits, so NumPy uses radix sort
        by = np.take_along_axis(by, np.argsort(falling, axis=1, kind="stable")[:, :k], 1)
        best = LongestMatches(np.take_along_axis(places, by, 1), np.take_along_axis(shared, by, 1))
        best.places[best.shared == 0] = -1
        return best, (ends == 0) | (best.shared[:, -1] >= ends)

    def _side(
        self, first: np.ndarray, shared: np.ndarray, width: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`width` contexts from `first` on: places int64, and symbols shared with the query uint8,
        both [n, width].
        """
        at = first[:, None] + step * np.arange(width)
        outside = (at < 0) | (at >= len(self.order))
        at[outside] = 0
        # two contexts share the minimum of the symbols that neighbours between them share
        links = self.shared[
            np.where(outside[:, 1:], 0, at[:, : width - 1] if step < 0 else at[:, 1:])
        ]
        running = np.minimum.accumulate(np.concatenate((shared[:, None], links), axis=1), axis=1)
        running[outside] = 0
        return self.order[at].astype(np.int64), running
