"""The longest matches of a context among the sorted contexts of a text: their positions, and the
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
    """Ranks of n contexts in the order.

    `rank` int64 [n]: the first context that is not smaller. `before` and `after` uint8 [n]: symbols
    shared with the context before that rank, and with the one at it.
    """

    rank: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @property
    def longest(self) -> np.ndarray:
        """Length of the longest match of each context in symbols, uint8 [n]."""
        return np.maximum(self.before, self.after)

    def select(self, rows: np.ndarray) -> "SuffixRange":
        """The entries at the indices `rows`."""
        return SuffixRange(self.rank[rows], self.before[rows], self.after[rows])


class LongestMatches(NamedTuple):
    """The best matches, longest first. `positions` int64 [n, k]: tokens of the text, -1 where missing.
    `shared` uint8 [n, k]: symbols that their contexts share with the query, 0 where missing."""

    positions: np.ndarray
    shared: np.ndarray


class _State(NamedTuple):
    """State of a binary search: low <= rank <= high, and the symbols that a query shares with the
    contexts at low - 1, `before`, and at high, `after`; all int64 [n].
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

    def locate(self, queries: Text, positions: np.ndarray) -> SuffixRange:
        """Find the ranks of contexts in this order by binary search; both texts have one
        vocabulary; positions int64 [n].

        Equal contexts of this text are ordered by position; those of another text come before them.
        All contexts of an interval share the symbols that both ends share with the query, so
        comparing begins after these.
        Source: Manber and Myers 1993, Suffix Arrays, section 2.
        """
        n = len(positions)
        state = _State(
            low=np.zeros(n, np.int64),
            high=np.full(n, len(self.order)),
            before=np.zeros(n, np.int64),
            after=np.zeros(n, np.int64),
        )
        # Similar queries in a row read the same memory.
        first_words = queries.words(positions, 0)
        rows = np.argsort(first_words, kind="stable")
        while len(rows):
            # Queries whose interval is empty have found their rank.
            rows = rows[state.low[rows] < state.high[rows]]
            middle = (state.low[rows] + state.high[rows]) // 2
            middle_positions = self.order[middle].astype(np.int64)
            depth = np.minimum(state.before[rows], state.after[rows])
            smaller, shared = self._compare(queries, positions[rows], middle_positions, depth)

            # Where the context in the middle is smaller, the search goes on above it.
            upper = rows[smaller]
            state.low[upper] = middle[smaller] + 1
            state.before[upper] = shared[smaller]

            # Where it is not, it may be the one that is looked for.
            lower = rows[~smaller]
            state.high[lower] = middle[~smaller]
            state.after[lower] = shared[~smaller]

        before = state.before.astype(np.uint8)
        after = state.after.astype(np.uint8)
        return SuffixRange(state.low, before, after)

    def _compare(
        self, queries: Text, positions: np.ndarray, others: np.ndarray, depth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether contexts of this text are smaller than the queries, and the number of symbols
        that they share.

        Args:
            others: positions in this text, [n].
            depth: number of symbols known to be shared, [n]; changed in place.
        """
        smaller = np.zeros(len(positions), bool)
        rows = np.arange(len(positions))
        while len(rows):
            # Compare the next word of each pair of contexts.
            row_depth = depth[rows]
            query_words = queries.words(positions[rows], row_depth)
            words = self.text.words(others[rows], row_depth)
            equal = self.text.equal_symbols(query_words, words)
            smaller[rows] = words < query_words
            depth[rows] = row_depth + equal

            # A pair that differs is decided.
            rows = rows[equal == self.text.per_word]

            # A context of t tokens has t + 1 symbols with its border; a pair equal beyond them is
            # equal as a whole.
            lengths = queries.lengths[positions[rows]].astype(np.int64)
            ended = lengths < depth[rows]
            whole = rows[ended]
            depth[whole] = lengths[ended] + 1

            # Equal contexts of one text are ordered by position; of two texts, the query is first.
            if queries is self.text:
                smaller[whole] = others[whole] < positions[whole]
            else:
                smaller[whole] = False
            rows = rows[~ended]

        # The last word may reach beyond LONGEST.
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
        """The k tokens whose contexts share most symbols; ties go to later tokens, among the k
        nearest on each side that may be found.

        Contexts that share most are neighbours in the order. So `width` of them on each side are
        looked at, and twice as many where some of them may not be found.

        Args:
            located: what `locate` gave for the n queries.
            within: int64 [n, 2], range of tokens that may be found; None: all tokens.
            without: int64 [n, 2], range of tokens that may not be found; None: no tokens.
            hidden: tokens that no query finds; None: no tokens.

        In "1 2 3 1 2 4" two tokens follow "1 2"; the first also shares the border before it:

        >>> text = Text.of(np.array([1, 2, 3, 1, 2, 4]), np.array([0, 6]), vocabulary=5)
        >>> contexts = SortedContexts.of(text)
        >>> queries = Text.of(np.array([1, 2, 0]), np.array([0, 3]), vocabulary=5)
        >>> matches = contexts.best(contexts.locate(queries, np.array([2])), k=2)
        >>> text.ids[matches.positions].tolist(), matches.shared.tolist()
        ([[3, 4]], [[3, 2]])
        """
        n = len(located.rank)
        matches = LongestMatches(np.full((n, k), -1), np.zeros((n, k), np.uint8))
        if not len(self.order):
            return matches

        rows = np.arange(n)
        width = k
        while len(rows):
            incomplete = []
            step = max(1, NUMBERS_AT_ONCE // width)
            for part in np.split(rows, range(step, len(rows), step)):
                nearby, complete = self._nearby(
                    located.select(part),
                    k,
                    width,
                    within=None if within is None else within[part],
                    without=None if without is None else without[part],
                    hidden=hidden,
                )
                matches.positions[part] = nearby.positions
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
        *,
        within: np.ndarray | None,
        without: np.ndarray | None,
        hidden: HiddenRows | None,
    ) -> tuple[LongestMatches, np.ndarray]:
        """The k best of `width` contexts on each side, and bool [n]: True if no context farther
        away can be better.
        """
        positions_before, shared_before = self._side(at.rank - 1, at.before, width, -1)
        positions_after, shared_after = self._side(at.rank, at.after, width, 1)
        positions = np.concatenate([positions_before, positions_after], axis=1)  # [n, 2 width]
        shared = np.concatenate([shared_before, shared_after], axis=1)
        # Symbols shared fall on each side. So none farther away shares more than the last one.
        max_beyond = [side[:, -1].copy() for side in (shared_before, shared_after)]

        if within is not None:
            shared[~_inside(positions, within)] = 0
        if without is not None:
            shared[_inside(positions, without)] = 0
        if hidden is not None and hidden.number:
            shared[hidden.contain(positions)] = 0
        sides = (shared[:, :width], shared[:, width:])
        are_full = [_keep_nearest(side, k) for side in sides]

        # Sort by symbols shared, then by later position: the first sort orders ties of the second.
        by_position = np.argsort(-positions, axis=1, kind="stable")
        shared_by_position = np.take_along_axis(shared, by_position, 1)
        # Small keys mean many symbols. They have 8 bits, so NumPy uses radix sort.
        keys = 255 - shared_by_position
        by_shared = np.argsort(keys, axis=1, kind="stable")[:, :k]
        columns = np.take_along_axis(by_position, by_shared, 1)  # [n, k]

        best_positions = np.take_along_axis(positions, columns, 1)
        best_shared = np.take_along_axis(shared, columns, 1)
        best_positions[best_shared == 0] = -1

        # On each side there are k, or no context farther away is as good as the worst of the best.
        complete = np.ones(len(positions), bool)
        for is_full, beyond in zip(are_full, max_beyond, strict=True):
            complete &= is_full | (beyond == 0) | (beyond < best_shared[:, -1])
        return LongestMatches(best_positions, best_shared), complete

    def _side(
        self, first: np.ndarray, shared: np.ndarray, width: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`width` contexts from `first` on, downwards (`step` -1) or upwards (1).

        Args:
            first: ranks of the first contexts, int64 [n].
            shared: symbols that the queries share with these, uint8 [n].
        Returns: positions, int64, and symbols shared with the query, uint8; both [n, width].
        """
        ranks = first[:, None] + step * np.arange(width)
        is_outside = (ranks < 0) | (ranks >= len(self.order))
        ranks[is_outside] = 0

        # `self.shared[i]` links context i with the one before it: a step down to i crosses link
        # i + 1, a step up to i crosses link i.
        crossed = ranks[:, : width - 1] if step < 0 else ranks[:, 1:]
        crossed = np.where(is_outside[:, 1:], 0, crossed)
        links = self.shared[crossed]  # [n, width - 1]

        # Two contexts share the minimum of the symbols that neighbours between them share.
        path = np.concatenate((shared[:, None], links), axis=1)
        shared_with_query = np.minimum.accumulate(path, axis=1)
        shared_with_query[is_outside] = 0

        positions = self.order[ranks].astype(np.int64)
        return positions, shared_with_query


def _keep_nearest(shared: np.ndarray, k: int) -> np.ndarray:
    """Leave out what lies beyond the k nearest contexts of a side that may be found.

    Without this limit, ties would depend on contexts that may not be found, such as those of later
    text: each takes a place among the `width` that are looked at.

    Args:
        shared: symbols that each context shares, nearest first, uint8 [n, width]; 0 where it may
            not be found. Changed in place.
    Returns: bool [n], True where k were found.
    """
    numbers = np.cumsum(shared > 0, axis=1)
    shared[numbers > k] = 0
    return numbers[:, -1] >= k


def _inside(positions: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Whether positions [n, m] lie in the range [start, stop) of their row; limits [n, 2]."""
    return (positions >= limits[:, :1]) & (positions < limits[:, 1:])
