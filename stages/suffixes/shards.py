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
RANKED_AT_ONCE = 1 << 18
"""Contexts that are ranked at a time, so that ranking takes no more memory than sorting."""


@dataclass(frozen=True)
class DocumentRanges:
    """Ranges of tokens from `starts` up to `stops`, both int64 [ranges], in order; M tokens in all."""

    starts: np.ndarray
    stops: np.ndarray

    @cached_property
    def before(self) -> np.ndarray:
        """Number of tokens in the ranges before each range, and in all ranges, int64 [ranges + 1]."""
        lengths = self.stops - self.starts
        return np.append(0, np.cumsum(lengths))

    def __len__(self) -> int:
        return int(self.before[-1])

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """Positions in the text of these tokens, int64.

        `numbers` count the tokens of the ranges from 0 to M - 1.

        >>> DocumentRanges(np.array([2, 7]), np.array([4, 9])).positions(np.arange(4)).tolist()
        [2, 3, 7, 8]
        """
        # The right side skips empty ranges, which begin at the same number as the next one.
        range_index = np.searchsorted(self.before, numbers, side="right") - 1
        offset = numbers - self.before[range_index]
        return self.starts[range_index] + offset


def borders(text: Text, documents: DocumentRanges, shards: int) -> SortedContexts:
    """Contexts that divide the contexts of some tokens into shards of about equal size.

    Each border is the last context of its shard. The same text gives the same borders.
    """
    sample = np.zeros(0, int)
    if shards > 1:
        # A fixed seed: borders are not a setting, and must not move between attempts.
        generator = np.random.default_rng(0)
        sample = generator.integers(0, len(documents), SAMPLED * shards)

    # What is sorted rises; a token that is drawn twice counts once.
    sampled_positions = np.unique(documents.positions(sample))
    order = sort_contexts(text, sampled_positions)
    quantiles = np.arange(1, shards) * len(order.positions) // shards
    return SortedContexts(text, order.positions[quantiles], order.shared[quantiles])


def group_by_shard(bounds: SortedContexts, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions grouped by shard, in their given order, and the number for each shard.

    The first word of most contexts is between those of two borders. Only the others are compared
    further.

    Args:
        bounds: the last context of each shard but the last.
        positions: integers [n].
    Returns: positions [n]; their numbers int64 [shards].
    """
    words = bounds.text.words(positions, 0)
    limits = bounds.text.words(bounds.order, 0)
    shard = np.searchsorted(limits, words)

    # A word that equals that of a border is between no two of them: the sides differ.
    is_undecided = shard != np.searchsorted(limits, words, side="right")
    undecided = np.flatnonzero(is_undecided)
    shard[undecided] = bounds.locate(bounds.text, positions[undecided]).rank

    by_shard = np.argsort(shard, kind="stable")
    counts = np.bincount(shard, minlength=len(limits) + 1)
    return positions[by_shard], counts


def positions_of_shard(parts: Sequence[tuple[np.ndarray, np.ndarray]], shard: int) -> np.ndarray:
    """The positions of one shard, int64, from all parts that `group_by_shard` gave."""
    pieces = []
    for positions, counts in parts:
        start = int(counts[:shard].sum())
        stop = start + int(counts[shard])
        pieces.append(positions[start:stop])
    return np.concatenate(pieces).astype(np.int64)


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
    # Documents are compared by their tokens, since their names may have changed.
    old_documents = defaultdict[bytes, deque[int]](deque)
    for document, digest in enumerate(_digests(*before)):
        old_documents[digest].append(document)

    # Pairs of documents with the same tokens: numbers in the old and in the new text.
    old_numbers = []
    new_numbers = []
    for document, digest in enumerate(_digests(*now)):
        same = old_documents[digest]
        if same:
            old_numbers.append(same.popleft())
            new_numbers.append(document)

    # Only documents whose order is the same in both texts keep the order of their contexts.
    in_order = np.array(_longest_rising(old_numbers), np.int64)
    old_in_order = np.array(old_numbers, np.int64)[in_order]
    new_in_order = np.array(new_numbers, np.int64)[in_order]
    return KeptDocuments(old_in_order, new_in_order)


def _digests(ids: np.ndarray, offsets: np.ndarray) -> Iterator[bytes]:
    """A digest of the tokens of each document."""
    for start, stop in pairwise(offsets):
        # One width, since the ids of the two texts may be stored in different ones.
        tokens = ids[start:stop].astype(np.uint32)
        yield blake2b(tokens.tobytes(), digest_size=16).digest()


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """Indices of a longest increasing subsequence of distinct numbers (patience sorting).

    >>> _longest_rising([4, 1, 2, 0, 3])
    [1, 2, 4]
    """
    # Of all rising runs of each length: the smallest last number, and its index.
    last_numbers: list[int] = []
    last_indices: list[int] = []
    # For each number, the index of the one before it in its run; -1: none.
    previous_index: list[int] = []
    for index, number in enumerate(numbers):
        length = bisect_left(last_numbers, number)
        previous_index.append(last_indices[length - 1] if length else -1)
        # This slice replaces an item, or appends one where no run is as long.
        last_numbers[length : length + 1] = [number]
        last_indices[length : length + 1] = [index]

    # Backwards from the end of a longest run.
    run = []
    index = last_indices[-1] if last_indices else -1
    while index >= 0:
        run.append(index)
        index = previous_index[index]
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
    """The order of kept contexts, block by block: positions in the changed text, and symbols shared
    with the one before.

    Two kept contexts share the minimum of the symbols that neighbours between them share.

    Args:
        blocks: positions and shared symbols of the previous order.
        before, now: offsets of the documents in each text, int64 [D + 1].

    Documents of one token each; the middle one goes, and the third one moves to its position:

    >>> order = np.array([0, 1, 2]), np.array([0, 5, 3], np.uint8)
    >>> documents = KeptDocuments(np.array([0, 2]), np.array([0, 1]))
    >>> list(keep_order([order], documents, np.arange(4), np.arange(3)))
    [(array([0, 1]), array([0, 3], dtype=uint8))]
    """
    # How far each kept document moves in the text.
    shift = np.zeros(len(before), np.int64)
    shift[documents.before] = now[documents.now] - before[documents.before]
    document_stays = np.zeros(len(before), bool)
    document_stays[documents.before] = True

    # Symbols shared since the last kept context, across the blocks.
    shared_since = np.uint8(LONGEST)
    for order, shared in blocks:
        document = np.searchsorted(before, order, side="right") - 1
        stays = np.flatnonzero(document_stays[document])

        # A run ends at each kept context, and one more at the end of the block. LONGEST changes no
        # minimum; it stands for that last run where the block ends with a kept context.
        run_starts = np.append(0, stays + 1)
        padded = np.append(shared, np.uint8(LONGEST))
        minima = np.minimum.reduceat(padded, run_starts)
        minima[0] = min(minima[0], shared_since)
        shared_since = minima[-1]

        positions = order[stays] + shift[document[stays]]
        yield positions, minima[:-1]


class RankedContexts(NamedTuple):
    """New contexts in order: `positions`, symbols `shared` with the new context before, and ranks
    among old contexts.

    `rank`: number of old contexts before it. `before`, `after`: symbols shared with the old
    contexts on either side.
    """

    positions: np.ndarray
    shared: np.ndarray
    rank: np.ndarray
    before: np.ndarray
    after: np.ndarray


def rank_contexts(text: Text, order: Order, old: SortedContexts) -> RankedContexts:
    """New contexts and their ranks among old contexts of the same text."""
    num_parts = 1 + len(order.positions) // RANKED_AT_ONCE
    parts = np.array_split(order.positions, num_parts)
    ranges = [old.locate(text, part) for part in parts]
    return RankedContexts(
        order.positions,
        order.shared,
        rank=np.concatenate([part.rank for part in ranges]),
        before=np.concatenate([part.before for part in ranges]),
        after=np.concatenate([part.after for part in ranges]),
    )


def merge_orders(
    text: Text, start: int, stop: int, new: Sequence[RankedContexts], old: Order
) -> Order:
    """Rows `start` to `stop` - 1 of the merged order of new and old contexts.

    Args:
        new: consecutive parts of the new contexts.
    """
    num_rows = stop - start
    first_new = _number_before(new, start)
    stop_new = _number_before(new, stop)

    # One new context more, if there is one: the first row shares symbols with it.
    extra = min(first_new, 1)
    window = _window(text, new, first_new - extra, stop_new)

    # A new context stands behind all old ones of its rank and all new ones before it. Its row is
    # counted from `start`; that of the extra one is negative.
    new_before = np.arange(first_new - extra, stop_new)
    window_rows = window.rank + new_before - start
    new_rows = window_rows[extra:]

    # Old contexts fill the other rows.
    is_old = np.ones(num_rows, bool)
    is_old[new_rows] = False
    first_old = start - first_new
    old_part = slice(first_old, first_old + int(is_old.sum()))

    positions = np.empty(num_rows, np.int64)
    positions[is_old] = old.positions[old_part]
    positions[new_rows] = window.positions[extra:]

    # Equal ranks: no old context lies between a new one and the new one before.
    follows_new = np.diff(window.rank, prepend=-1) == 0
    shared_of_window = np.where(follows_new, window.shared, window.before)
    shared = np.empty(num_rows, np.uint8)
    shared[is_old] = old.shared[old_part]
    shared[new_rows] = shared_of_window[extra:]

    # Old contexts that follow a new one share symbols with that one now.
    next_rows = window_rows + 1
    has_next = np.flatnonzero((next_rows >= 0) & (next_rows < num_rows))
    before_old = has_next[is_old[next_rows[has_next]]]
    shared[next_rows[before_old]] = window.after[before_old]
    return Order(positions, shared)


def _number_before(new: Sequence[RankedContexts], row: int) -> int:
    """Number of new contexts before a row of the merged order."""
    count = 0
    for part in new:
        # A new context's row: the old contexts before it, its rank, and the new ones before it.
        size = len(part.rank)
        if size:
            last_row = int(part.rank[-1]) + count + size - 1
            if last_row >= row:
                rows = part.rank + np.arange(count, count + size)
                return count + int(np.searchsorted(rows, row))
        count += size
    return count


def _window(text: Text, new: Sequence[RankedContexts], start: int, stop: int) -> RankedContexts:
    """New contexts `start` to `stop` - 1; the first of a part, too, has the symbols shared with the
    one before it.
    """
    pieces = [_no_contexts()]
    count = 0
    for part in new:
        window = slice(max(start - count, 0), max(stop - count, 0))
        # A copy, since a part is a file that is mapped for reading.
        arrays = [np.array(array[window]) for array in part]
        piece = RankedContexts(*arrays)
        count += len(part.positions)
        if not len(piece.positions):
            continue

        # Parts were sorted separately, so symbols across their border are still to be counted.
        previous = pieces[-1]
        if window.start == 0 and len(previous.positions):
            border = np.array([previous.positions[-1], piece.positions[0]], np.int64)
            pair = sort_contexts(text, np.sort(border))
            piece.shared[0] = pair.shared[1]
        pieces.append(piece)

    fields = zip(*pieces, strict=True)
    return RankedContexts(*map(np.concatenate, fields))


def _no_contexts() -> RankedContexts:
    return RankedContexts(
        positions=np.zeros(0, np.int64),
        shared=np.zeros(0, np.uint8),
        rank=np.zeros(0, np.int64),
        before=np.zeros(0, np.uint8),
        after=np.zeros(0, np.uint8),
    )
