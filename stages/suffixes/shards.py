"""Division of contexts into shards that are sorted separately, and merging with the contexts of a
previous text.

Borders are contexts from a sorted sample. A shard holds the contexts between two borders, so shards
follow each other in the order. Their sizes are similar even if one token is repeated. If a text
changes, the contexts of kept documents keep their order, and new contexts are merged by rank.

Shapes: N tokens of the changed text (K stay and M are new); R rows of the merged order.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stages.suffixes.matches import SortedContexts
from stages.suffixes.text import LONGEST, Order, Text, sort_contexts

SAMPLED = 256
"""Sampled contexts for each shard; the standard deviation of sizes is then a sixteenth of the mean.
"""


@dataclass(frozen=True)
class Stretches:
    """Ranges of tokens from `starts` up to `stops`, both int64 [ranges], in order; M tokens in all."""

    starts: np.ndarray
    stops: np.ndarray

    @cached_property
    def before(self) -> np.ndarray:
        """Number of tokens in the ranges before each range, and in all ranges, int64 [ranges + 1]."""
        return np.append(0, np.cumsum(self.stops - self.starts))

    def __len__(self) -> int:
        return int(self.before[-1])

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Places in the text of these tokens, int64; `numbers` count the tokens of the ranges from
        0 to M - 1.

        >>> Stretches(np.array([2, 7]), np.array([4, 9])).places(np.arange(4)).tolist()
        [2, 3, 7, 8]
        """
        stretch = np.searchsorted(self.before, numbers, side="right") - 1
        return self.starts[stretch] + numbers - self.before[stretch]


def borders(text: Text, held: Stretches, shards: int) -> SortedContexts:
    """Contexts that divide the contexts of some tokens into shards of about equal size.

    Each border is the last context of its shard. The same text gives the same borders.
    """
    # a fixed seed: borders are not a setting, and must not move between attempts
    numbers = (
        np.random.default_rng(0).integers(0, len(held), SAMPLED * shards)
        if shards > 1
        else np.zeros(0, int)
    )
    order, shared = sort_contexts(text, np.unique(held.places(numbers)))
    kept = np.arange(1, shards) * len(order) // shards
    return SortedContexts(text, order[kept], shared[kept])


def grouped(bounds: SortedContexts, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places grouped by shard, in their given order, and the number for each shard, int64 [shards].

    The first word of most contexts is between those of two borders. Only the others are compared
    further.
    """
    words, limits = bounds.text.words(places, 0), bounds.text.words(bounds.order, 0)
    shard = np.searchsorted(limits, words)
    near = np.flatnonzero(shard != np.searchsorted(limits, words, side="right"))
    shard[near] = bounds.locate(bounds.text, places[near]).place
    return places[np.argsort(shard, kind="stable")], np.bincount(shard, minlength=len(limits) + 1)


def taken(parts: Sequence[tuple[np.ndarray, np.ndarray]], shard: int) -> np.ndarray:
    """The places of one shard, from all parts that `grouped` gave."""
    starts = [int(counts[:shard].sum()) for _, counts in parts]
    pieces = [
        places[n : n + int(counts[shard])]
        for n, (places, counts) in zip(starts, parts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int64)


RANKED_AT_ONCE = 1 << 18
"""Contexts that are ranked at a time, so that ranking takes no more memory than sorting."""


class Staying(NamedTuple):
    """Documents that both texts have, in the same order: their numbers in the old and new text,
    both int64 [S].
    """

    before: np.ndarray
    now: np.ndarray


def staying(before: tuple[np.ndarray, np.ndarray], now: tuple[np.ndarray, np.ndarray]) -> Staying:
    """The longest common subsequence of documents with the same tokens.

    If several documents have the same tokens, the first of each text are paired, then the second.

    Args:
        before, now: tokens of each text, and offsets of its documents, int64 [D + 1].
    """
    # documents are compared by their tokens, since their names may have changed
    held = defaultdict[bytes, deque[int]](deque)
    for number, digest in enumerate(_digests(*before)):
        held[digest].append(number)
    pairs = [
        (held[one].popleft(), number) for number, one in enumerate(_digests(*now)) if held[one]
    ]
    rising = [pairs[place] for place in _longest_rising([old for old, _ in pairs])]
    olds, news = np.array(rising, np.int64).reshape(-1, 2).T
    return Staying(olds, news)


def _digests(ids: np.ndarray, offsets: np.ndarray) -> Iterator[bytes]:
    for start, stop in pairwise(offsets):
        yield blake2b(ids[start:stop].astype(np.uint32).tobytes(), digest_size=16).digest()


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """Indices of a longest increasing subsequence of distinct numbers (patience sorting).

    >>> _longest_rising([4, 1, 2, 0, 3])
    [1, 2, 4]
    """
    ends, at, previous = list[int](), list[int](), list[int]()
    for place, number in enumerate(numbers):
        length = bisect_left(ends, number)
        previous.append(at[length - 1] if length else -1)
        ends[length : length + 1], at[length : length + 1] = [number], [place]
    run = at[-1:]
    while run and previous[run[-1]] >= 0:
        run.append(previous[run[-1]])
    return run[::-1]


def others(offsets: np.ndarray, stay: np.ndarray) -> Stretches:
    """The tokens of all documents that are not in `stay`."""
    new = np.setdiff1d(np.arange(len(offsets) - 1), stay)
    return Stretches(offsets[new], offsets[new + 1])


def kept(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    documents: Staying,
    before: np.ndarray,
    now: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The order of kept contexts, block by block: places in the changed text, and symbols shared
    with the one before.

    Two kept contexts share the minimum of the symbols that neighbours between them share.

    Args:
        blocks: places and shared symbols of the previous order.
        before, now: offsets of the documents in each text, int64 [D + 1].
    """
    shift, stays = np.zeros(len(before), np.int64), np.zeros(len(before), bool)
    shift[documents.before] = now[documents.now] - before[documents.before]
    stays[documents.before] = True
    least = np.uint8(LONGEST)
    for order, shared in blocks:
        document = np.searchsorted(before, order, side="right") - 1
        here = np.flatnonzero(stays[document])
        folded = np.minimum.reduceat(np.append(shared, np.uint8(LONGEST)), np.append(0, here + 1))
        folded[0] = min(folded[0], least)
        least = folded[-1]
        yield order[here] + shift[document[here]], folded[:-1]


class Ranked(NamedTuple):
    """New contexts in order: `places`, symbols `shared` with the new context before, and ranks
    among old contexts.

    `rank`: number of old contexts before it. `before`, `after`: symbols shared with the old
    contexts on either side.
    """

    places: np.ndarray
    shared: np.ndarray
    rank: np.ndarray
    before: np.ndarray
    after: np.ndarray


def ranked(text: Text, order: Order, old: SortedContexts) -> Ranked:
    """New contexts and their ranks among old contexts of the same text."""
    parts = np.array_split(order.places, 1 + len(order.places) // RANKED_AT_ONCE)
    located = [old.locate(text, part) for part in parts]
    rank, before, after = (np.concatenate(pieces) for pieces in zip(*located, strict=True))
    return Ranked(*order, rank, before, after)


def merged(text: Text, start: int, stop: int, new: Sequence[Ranked], old: Order) -> Order:
    """Rows `start` to `stop` - 1 of the merged order of new and old contexts.

    Args:
        new: consecutive parts of the new contexts.
    """
    first = _number_before(new, start)
    before = min(first, 1)  # one context more, since the first row shares symbols with it
    window = _window(text, new, first - before, _number_before(new, stop))
    rows = window.rank + np.arange(len(window.rank)) + first - before - start
    places, shared = np.empty(stop - start, np.int64), np.empty(stop - start, np.uint8)
    is_old = np.ones(stop - start, bool)
    is_old[rows[before:]] = False
    held = slice(start - first, start - first + int(is_old.sum()))
    places[is_old], shared[is_old] = old.places[held], old.shared[held]
    behind_new = np.diff(window.rank, prepend=-1) == 0
    places[rows[before:]] = window.places[before:]
    shared[rows[before:]] = np.where(behind_new, window.shared, window.before)[before:]
    beside = np.flatnonzero((rows + 1 >= 0) & (rows + 1 < stop - start))
    beside = beside[is_old[rows[beside] + 1]]
    shared[rows[beside] + 1] = window.after[beside]
    return Order(places, shared)


def _number_before(new: Sequence[Ranked], row: int) -> int:
    """Number of new contexts before a row of the merged order."""
    count = 0
    for part in new:
        size = len(part.rank)
        if size and int(part.rank[-1]) + count + size > row:
            return count + int(np.searchsorted(part.rank + np.arange(count, count + size), row))
        count += size
    return count


def _window(text: Text, new: Sequence[Ranked], start: int, stop: int) -> Ranked:
    """New contexts `start` to `stop` - 1; the first of a part, too, has the symbols shared with the
    one before it.
    """
    pieces, count = (
        [
            Ranked(
                *(
                    np.zeros(0, dtype)
                    for dtype in (np.int64, np.uint8, np.int64, np.uint8, np.uint8)
                )
            )
        ],
        0,
    )
    for part in new:
        wanted = slice(max(start - count, 0), max(stop - count, 0))
        piece = Ranked(*(np.array(array[wanted]) for array in part))
        if wanted.start == 0 and len(piece.places) and len(pieces[-1].places):
            ends = np.array([pieces[-1].places[-1], piece.places[0]], np.int64)
            piece.shared[0] = sort_contexts(text, np.sort(ends)).shared[1]
        if len(piece.places):
            pieces.append(piece)
        count += len(part.places)
    return Ranked(*map(np.concatenate, zip(*pieces, strict=True)))
