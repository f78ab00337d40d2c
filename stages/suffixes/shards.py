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
class DocumentRanges:
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

        >>> DocumentRanges(np.array([2, 7]), np.array([4, 9])).places(np.arange(4)).tolist()
        [2, 3, 7, 8]
        """
        stretch = np.searchsorted(self.before, numbers, side="right") - 1
        return self.starts[stretch] + numbers - self.before[stretch]


def borders(text: Text, documents: DocumentRanges, shards: int) -> SortedContexts:
    """Contexts that divide the contexts of some tokens into shards of about equal size.

    Each border is the last context of its shard. The same text gives the same borders.
    """
    sample = np.zeros(0, int)
    if shards > 1:
        # a fixed seed: borders are not a setting, and must not move between attempts
        generator = np.random.default_rng(0)
        sample = generator.integers(0, len(documents), SAMPLED * shards)
    order, shared = sort_contexts(text, np.unique(documents.places(sample)))
    quantiles = np.arange(1, shards) * len(order) // shards
    return SortedContexts(text, order[quantiles], shared[quantiles])


def group_by_shard(bounds: SortedContexts, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places grouped by shard, in their given order, and the number for each shard, int64 [shards].

    The first word of most contexts is between those of two borders. Only the others are compared
    further.
    """
    words = bounds.text.words(places, 0)
    limits = bounds.text.words(bounds.order, 0)
    shard = np.searchsorted(limits, words)
    near = np.flatnonzero(shard != np.searchsorted(limits, words, side="right"))
    shard[near] = bounds.locate(bounds.text, places[near]).place
    return places[np.argsort(shard, kind="stable")], np.bincount(shard, minlength=len(limits) + 1)


def places_of_shard(parts: Sequence[tuple[np.ndarray, np.ndarray]], shard: int) -> np.ndarray:
    """The places of one shard, from all parts that `group_by_shard` gave."""
    starts = [int(counts[:shard].sum()) for _, counts in parts]
    pieces = [
        places[n : n + int(counts[shard])]
        for n, (places, counts) in zip(starts, parts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int64)


RANKED_AT_ONCE = 1 << 18
"""Contexts that are ranked at a time, so that ranking takes no more memory than sorting."""


class KeptDocuments(NamedTuple):
    """Documents that both texts have, in the same order: their numbers in the old and new text,
    both int64 [S].
    """

    before: np.ndarray
    now: np.ndarray


def match_documents(
    before: tuple[np.ndarray, np.ndarray], now: tuple[np.ndarray, np.ndarray]
) -> KeptDocuments:
    """The longest common subsequence of documents with the same tokens.

    If several documents have the same tokens, the first of each text are paired, then the second.

    Args:
        before, now: tokens of each text, and offsets of its documents, int64 [D + 1].
    """
    # documents are compared by their tokens, since their names may have changed
    numbers_before = defaultdict[bytes, deque[int]](deque)
    for number, digest in enumerate(_digests(*before)):
        numbers_before[digest].append(number)

    pairs = []
    for number, digest in enumerate(_digests(*now)):
        if numbers_before[digest]:
            pairs.append((numbers_before[digest].popleft(), number))

    # only documents whose order is the same in both texts keep the order of their contexts
    in_order = _longest_rising([number_before for number_before, _ in pairs])
    kept_pairs = np.array([pairs[index] for index in in_order], np.int64).reshape(-1, 2)
    return KeptDocuments(kept_pairs[:, 0], kept_pairs[:, 1])


def _digests(ids: np.ndarray, offsets: np.ndarray) -> Iterator[bytes]:
    for start, stop in pairwise(offsets):
        yield blake2b(ids[start:stop].astype(np.uint32).tobytes(), digest_size=16).digest()


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """Indices of a longest increasing subsequence of distinct numbers (patience sorting).

    >>> _longest_rising([4, 1, 2, 0, 3])
    [1, 2, 4]
    """
    # of all rising runs of each length: the smallest last number, and its index
    last_numbers: list[int] = []
    last_indices: list[int] = []
    previous_index: list[int] = []
    for index, number in enumerate(numbers):
        length = bisect_left(last_numbers, number)
        previous_index.append(last_indices[length - 1] if length else -1)
        last_numbers[length : length + 1] = [number]
        last_indices[length : length + 1] = [index]

    # backwards from the end of a longest run
    run = last_indices[-1:]
    while run and previous_index[run[-1]] >= 0:
        run.append(previous_index[run[-1]])
    return run[::-1]


def new_ranges(offsets: np.ndarray, stay: np.ndarray) -> DocumentRanges:
    """The tokens of all documents that are not in `stay`."""
    new = np.setdiff1d(np.arange(len(offsets) - 1), stay)
    return DocumentRanges(offsets[new], offsets[new + 1])


def keep_order(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    documents: KeptDocuments,
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
    shift = np.zeros(len(before), np.int64)
    shift[documents.before] = now[documents.now] - before[documents.before]
    document_stays = np.zeros(len(before), bool)
    document_stays[documents.before] = True

    # symbols shared since the last kept context, across the blocks
    shared_since = np.uint8(LONGEST)
    for order, shared in blocks:
        document = np.searchsorted(before, order, side="right") - 1
        stays = np.flatnonzero(document_stays[document])
        # the minimum over each run that ends at a kept context, and over what follows the last one
        padded = np.append(shared, np.uint8(LONGEST))
        minima = np.minimum.reduceat(padded, np.append(0, stays + 1))
        minima[0] = min(minima[0], shared_since)
        shared_since = minima[-1]
        yield order[stays] + shift[document[stays]], minima[:-1]


class RankedContexts(NamedTuple):
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


def rank_contexts(text: Text, order: Order, old: SortedContexts) -> RankedContexts:
    """New contexts and their ranks among old contexts of the same text."""
    parts = np.array_split(order.places, 1 + len(order.places) // RANKED_AT_ONCE)
    located = [old.locate(text, part) for part in parts]
    rank, before, after = (np.concatenate(pieces) for pieces in zip(*located, strict=True))
    return RankedContexts(*order, rank, before, after)


def merge_orders(
    text: Text, start: int, stop: int, new: Sequence[RankedContexts], old: Order
) -> Order:
    """Rows `start` to `stop` - 1 of the merged order of new and old contexts.

    Args:
        new: consecutive parts of the new contexts.
    """
    first = _number_before(new, start)
    # one context more, since the first row shares symbols with it
    extra = min(first, 1)
    window = _window(text, new, first - extra, _number_before(new, stop))
    num_rows = stop - start
    # a new context stands behind all old ones of its rank and all new ones before it
    rows = window.rank + np.arange(len(window.rank)) + first - extra - start
    new_rows = rows[extra:]

    is_old = np.ones(num_rows, bool)
    is_old[new_rows] = False
    first_old = start - first
    old_part = slice(first_old, first_old + int(is_old.sum()))

    places = np.empty(num_rows, np.int64)
    places[is_old] = old.places[old_part]
    places[new_rows] = window.places[extra:]

    shared = np.empty(num_rows, np.uint8)
    shared[is_old] = old.shared[old_part]
    # equal ranks: no old context lies between a new one and the new one before
    follows_new = np.diff(window.rank, prepend=-1) == 0
    shared[new_rows] = np.where(follows_new, window.shared, window.before)[extra:]

    # old contexts that follow a new one share symbols with that one now
    has_next = np.flatnonzero((rows + 1 >= 0) & (rows + 1 < num_rows))
    before_old = has_next[is_old[rows[has_next] + 1]]
    shared[rows[before_old] + 1] = window.after[before_old]
    return Order(places, shared)


def _number_before(new: Sequence[RankedContexts], row: int) -> int:
    """Number of new contexts before a row of the merged order."""
    count = 0
    for part in new:
        size = len(part.rank)
        if size and int(part.rank[-1]) + count + size > row:
            return count + int(np.searchsorted(part.rank + np.arange(count, count + size), row))
        count += size
    return count


def _window(text: Text, new: Sequence[RankedContexts], start: int, stop: int) -> RankedContexts:
    """New contexts `start` to `stop` - 1; the first of a part, too, has the symbols shared with the
    one before it.
    """
    dtypes = (np.int64, np.uint8, np.int64, np.uint8, np.uint8)
    empty = [np.zeros(0, dtype) for dtype in dtypes]
    pieces = [RankedContexts(*empty)]
    count = 0
    for part in new:
        window = slice(max(start - count, 0), max(stop - count, 0))
        arrays = [np.array(array[window]) for array in part]
        piece = RankedContexts(*arrays)
        count += len(part.places)
        if not len(piece.places):
            continue

        # Parts were sorted apart, so symbols across their border are still to be counted.
        previous = pieces[-1]
        if window.start == 0 and len(previous.places):
            border = np.array([previous.places[-1], piece.places[0]], np.int64)
            piece.shared[0] = sort_contexts(text, np.sort(border)).shared[1]
        pieces.append(piece)
    return RankedContexts(*map(np.concatenate, zip(*pieces, strict=True)))
