"""The contexts of a text that share most with a context: where they stand in the order, and how much they share.

Shapes: N contexts in order, n that are asked for, k found for each.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.suffixes.text import LONGEST, Text, sort_contexts

NUMBERS_AT_ONCE = 1 << 18
"""Numbers that the matches of a part of the contexts take: they stay near the processor."""


class Located(NamedTuple):
    """Where n contexts would stand: `place` int64, of the first that is not smaller; `before` and `after` uint8,
    symbols shared with the context in front of it, and with that one."""

    place: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @property
    def longest(self) -> np.ndarray:
        """Symbols of the longest match of each, uint8 [n]."""
        return np.maximum(self.before, self.after)

    def taken(self, part: np.ndarray) -> "Located":
        """Some of them."""
        return Located(self.place[part], self.before[part], self.after[part])


class Matched(NamedTuple):
    """The best matches, longest first: `places` int64 [n, k] of tokens of the text, -1 where there are fewer; `shared`
    uint8 [n, k], symbols that the context of each shares, 0 where missing."""

    places: np.ndarray
    shared: np.ndarray


class _State(NamedTuple):
    """A binary search: low <= place <= high, and the symbols shared with the contexts at low - 1 and at high."""

    low: np.ndarray
    high: np.ndarray
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True)
class SortedContexts:
    """A text and the order of its contexts, as `sort_contexts` gives it: integers [N], and uint8 [N]."""

    text: Text
    order: np.ndarray
    shared: np.ndarray

    @classmethod
    def of(cls, text: Text) -> "SortedContexts":
        """Sort all contexts of a text at once."""
        return cls(text, *sort_contexts(text, np.arange(len(text))))

    def locate(self, asked: Text, places: np.ndarray) -> Located:
        """Find where contexts of a text of the same vocabulary would stand, by binary search; places int64 [n].

        Equal contexts of this very text stand by their places; of another text, before those of this. What both ends
        of an interval share with a context, all between them do: comparing begins there.
        Source: Manber and Myers 1993, Suffix Arrays, section 2.
        """
        n = len(places)
        state = _State(np.zeros(n, np.int64), np.full(n, len(self.order)), np.zeros(n, np.int64), np.zeros(n, np.int64))
        by = np.argsort(asked.words(places, 0), kind="stable")  # neighbours after each other read the same memory
        asking = by
        while len(asking):
            asking = asking[state.low[asking] < state.high[asking]]
            middle = (state.low[asking] + state.high[asking]) // 2
            depth = np.minimum(state.before[asking], state.after[asking])
            smaller, shared = self._compare(asked, places[asking], self.order[middle].astype(np.int64), depth)
            up, down = asking[smaller], asking[~smaller]
            state.low[up], state.before[up] = middle[smaller] + 1, shared[smaller]
            state.high[down], state.after[down] = middle[~smaller], shared[~smaller]
        return Located(state.low, state.before.astype(np.uint8), state.after.astype(np.uint8))

    def _compare(
        self, asked: Text, places: np.ndarray, others: np.ndarray, depth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether contexts of this text are smaller than those asked for, and how many symbols they share.

        Args:
            others: places in this text. depth: symbols that are known to be shared, [n]; changed.
        """
        smaller, open_ = np.zeros(len(places), bool), np.arange(len(places))
        while len(open_):
            mine, theirs = (
                text.words(some[open_], depth[open_]) for text, some in ((asked, places), (self.text, others))
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
        self, located: Located, k: int, *, within: np.ndarray | None = None, without: np.ndarray | None = None
    ) -> Matched:
        """The k tokens whose contexts share most, of equals the later ones of those next to the place.

        Args:
            within: int64 [n, 2], from where and up to where tokens may be found; None: all may.
            without: int64 [n, 2], tokens that may not be found; None: none.

        In "1 2 3 1 2 4" two tokens stand behind "1 2"; the first shares the border before it, too:

        >>> text = Text.of(np.array([1, 2, 3, 1, 2, 4]), np.array([0, 6]), vocabulary=5)
        >>> asked, contexts = Text.of(np.array([1, 2, 0]), np.array([0, 3]), vocabulary=5), SortedContexts.of(text)
        >>> found = contexts.best(contexts.locate(asked, np.array([2])), k=2)
        >>> text.ids[found.places].tolist(), found.shared.tolist()
        ([[3, 4]], [[3, 2]])
        """
        n = len(located.place)
        found = Matched(np.full((n, k), -1), np.zeros((n, k), np.uint8))
        open_, width = np.arange(n if len(self.order) else 0), k
        while len(open_):
            # twice the width for those alone whose best may lie farther out
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
        self, at: Located, k: int, width: int, within: np.ndarray | None, without: np.ndarray | None
    ) -> tuple[Matched, np.ndarray]:
        """The best of `width` contexts on each side, and whether no other can be among them, bool [n]."""
        sides = [self._side(at.place - 1, at.before, width, -1), self._side(at.place, at.after, width, 1)]
        places, shared = (np.concatenate(both, axis=1) for both in zip(*sides, strict=True))
        ends = np.maximum(*(side[1][:, -1] for side in sides))
        for limits, inside in ((within, True), (without, False)):
            if limits is not None:
                held = (places >= limits[:, :1]) & (places < limits[:, 1:])
                shared[held != inside] = 0
        by = np.argsort(-places, axis=1, kind="stable")
        falling = 255 - np.take_along_axis(shared, by, 1)  # of 8 bits, so that sorting is by counting
        by = np.take_along_axis(by, np.argsort(falling, axis=1, kind="stable")[:, :k], 1)
        best = Matched(np.take_along_axis(places, by, 1), np.take_along_axis(shared, by, 1))
        best.places[best.shared == 0] = -1
        return best, (ends == 0) | (best.shared[:, -1] >= ends)

    def _side(self, first: np.ndarray, shared: np.ndarray, width: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        """`width` contexts from `first` on, and what they share: places int64 and symbols uint8, both [n, width]."""
        at = first[:, None] + step * np.arange(width)
        outside = (at < 0) | (at >= len(self.order))
        at[outside] = 0
        # what two contexts share is the least that neighbours between them share
        links = self.shared[np.where(outside[:, 1:], 0, at[:, : width - 1] if step < 0 else at[:, 1:])]
        running = np.minimum.accumulate(np.concatenate((shared[:, None], links), axis=1), axis=1)
        running[outside] = 0
        return self.order[at].astype(np.int64), running
