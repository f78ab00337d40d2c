"""The longest matches of a context among the sorted contexts of a text: their places, and the
symbols they share.

Shapes: N sorted contexts, n queries, k matches for each query.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.search.hidden import HiddenRows
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

    def select(self, rows: np.ndarray) -> "SuffixRange":
        """The entries at the indices `rows`."""
        return SuffixRange(self.place[rows], self.before[rows], self.after[rows])


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

    def locate(self, queries: Text, places: np.ndarray) -> SuffixRange:
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
        # Similar queries in a row read the same memory.
        rows = np.argsort(queries.words(places, 0), kind="stable")
        while len(rows):
            # Queries whose interval is empty have found their place.
            rows = rows[state.low[rows] < state.high[rows]]
            middle = (state.low[rows] + state.high[rows]) // 2
            depth = np.minimum(state.before[rows], state.after[rows])
            middle_places = self.order[middle].astype(np.int64)
            smaller, shared = self._compare(queries, places[rows], middle_places, depth)

            # A smaller context in the middle leaves the upper half, another one the lower half.
            upper = rows[smaller]
            state.low[upper] = middle[smaller] + 1
            state.before[upper] = shared[smaller]
            lower = rows[~smaller]
            state.high[lower] = middle[~smaller]
            state.after[lower] = shared[~smaller]
        return SuffixRange(state.low, state.before.astype(np.uint8), state.after.astype(np.uint8))

    def _compare(
        self, queries: Text, places: np.ndarray, others: np.ndarray, depth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether contexts of this text are smaller than the queries, and the number of symbols
        that they share.

        Args:
            others: places in this text, [n].
            depth: number of symbols known to be shared, [n]; changed in place.
        """
        smaller = np.zeros(len(places), bool)
        rows = np.arange(len(places))
        while len(rows):
            # Compare the next word of each pair of contexts.
            query_words = queries.words(places[rows], depth[rows])
            words = self.text.words(others[rows], depth[rows])
            equal = self.text.equal_symbols(query_words, words)
            smaller[rows] = words < query_words
            depth[rows] += equal

            # A pair that differs is decided.
            rows = rows[equal == self.text.per_word]

            # A context of t tokens has t + 1 symbols with its border; a pair equal beyond them is
            # equal as a whole. Then the places decide, if both are of one text.
            ended = queries.lengths[places[rows]] < depth[rows]
            whole = rows[ended]
            depth[whole] = queries.lengths[places[whole]].astype(np.int64) + 1
            smaller[whole] = others[whole] < places[whole] if queries is self.text else False
            rows = rows[~ended]
        return smaller, np.minimum(depth, LONGEST)

    def best(
        self,
        located: SuffixRange,
        k: int,
        *,
        within: np.ndarray | None = None,
        without: np.ndarray | None = None,
        hidden: HiddenRows | None = None,
    ) -> LongestMatches:
        """The k tokens whose contexts share most symbols; ties go to later tokens, among the
        contexts near the place.

        Args:
            within: int64 [n, 2], range of tokens that may be found; None: all tokens.
            without: int64 [n, 2], range of tokens that may not be found; None: no tokens.
            hidden: tokens that no query finds; None: no tokens.

        In "1 2 3 1 2 4" two tokens follow "1 2"; the first also shares the border before it:

        >>> text = Text.of(np.array([1, 2, 3, 1, 2, 4]), np.array([0, 6]), vocabulary=5)
        >>> contexts = SortedContexts.of(text)
        >>> queries = Text.of(np.array([1, 2, 0]), np.array([0, 3]), vocabulary=5)
        >>> matches = contexts.best(contexts.locate(queries, np.array([2])), k=2)
        >>> text.ids[matches.places].tolist(), matches.shared.tolist()
        ([[3, 4]], [[3, 2]])
        """
        n = len(located.place)
        matches = LongestMatches(np.full((n, k), -1), np.zeros((n, k), np.uint8))
        rows = np.arange(n if len(self.order) else 0)
        width = k
        while len(rows):
            incomplete = [np.zeros(0, np.int64)]
            step = max(1, NUMBERS_AT_ONCE // width)
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                nearby, complete = self._nearby(
                    located.select(part),
                    k,
                    width,
                    None if within is None else within[part],
                    None if without is None else without[part],
                    hidden,
                )
                matches.places[part] = nearby.places
                matches.shared[part] = nearby.shared
                incomplete.append(part[~complete])

            # Double the width only for queries whose best matches may be farther away.
            rows = np.concatenate(incomplete)
            width = 2 * width
        return matches

    def _nearby(
        self,
        at: SuffixRange,
        k: int,
        width: int,
        within: np.ndarray | None,
        without: np.ndarray | None,
        hidden: HiddenRows | None,
    ) -> tuple[LongestMatches, np.ndarray]:
        """The k best of `width` contexts on each side, and bool [n]: True if no context farther
        away can be better.
        """
        places_before, shared_before = self._side(at.place - 1, at.before, width, -1)
        places_after, shared_after = self._side(at.place, at.after, width, 1)
        places = np.concatenate([places_before, places_after], axis=1)
        shared = np.concatenate([shared_before, shared_after], axis=1)
        # Symbols shared fall on each side. So none farther away shares more than the last one.
        most_beyond = np.maximum(shared_before[:, -1], shared_after[:, -1])

        if within is not None:
            shared[~_inside(places, within)] = 0
        if without is not None:
            shared[_inside(places, without)] = 0
        if hidden is not None and hidden.number:
            shared[hidden.contain(places)] = 0

        # Sort by symbols shared, then by later place: the first sort orders ties of the second.
        by_place = np.argsort(-places, axis=1, kind="stable")
        # Small keys mean many symbols. They have 8 bits, so NumPy uses radix sort.
        keys = 255 - np.take_along_axis(shared, by_place, 1)
        by_shared = np.argsort(keys, axis=1, kind="stable")[:, :k]
        columns = np.take_along_axis(by_place, by_shared, 1)

        best = LongestMatches(
            np.take_along_axis(places, columns, 1), np.take_along_axis(shared, columns, 1)
        )
        best.places[best.shared == 0] = -1
        complete = (most_beyond == 0) | (best.shared[:, -1] >= most_beyond)
        return best, complete

    def _side(
        self, first: np.ndarray, shared: np.ndarray, width: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`width` contexts from `first` on: places int64, and symbols shared with the query uint8,
        both [n, width].
        """
        index = first[:, None] + step * np.arange(width)
        is_outside = (index < 0) | (index >= len(self.order))
        index[is_outside] = 0

        # `shared[i]` links context i with the one before it: a step down to i crosses link i + 1, a
        # step up to i crosses link i.
        crossed = index[:, : width - 1] if step < 0 else index[:, 1:]
        crossed = np.where(is_outside[:, 1:], 0, crossed)
        links = self.shared[crossed]

        # Two contexts share the minimum of the symbols that neighbours between them share.
        links = np.concatenate((shared[:, None], links), axis=1)
        running = np.minimum.accumulate(links, axis=1)
        running[is_outside] = 0
        return self.order[index].astype(np.int64), running


def _inside(places: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Whether places [n, m] lie in the range [start, stop) of their row; limits [n, 2]."""
    return (places >= limits[:, :1]) & (places < limits[:, 1:])
