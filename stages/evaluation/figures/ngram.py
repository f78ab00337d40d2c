"""An n-gram model with interpolated Witten-Bell smoothing, which every language model should beat.

After a context h, which occurs c(h) times in the text and before T(h) different tokens,

    p(w | h) = (c(h, w) + T(h) p(w | h without its first token)) / (c(h) + T(h)),

where the uniform 1/V is below the empty context. Nothing is tuned. Sources: Witten and Bell 1991,
The zero-frequency problem, method C; recursion from Chen and Goodman 1998, An Empirical Study of
Smoothing Techniques for Language Modeling, section 2.5. Sorts, not loops, count the tokens of many
groups at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

TOKENS_AT_ONCE = 1 << 18


class Counts(NamedTuple):
    """c(h, w), c(h) and T(h) for each of n tokens w after their contexts h."""

    gram: np.ndarray
    total: np.ndarray
    types: np.ndarray

    def interpolated(self, below: np.ndarray) -> np.ndarray:
        """p(w | h), float64 [n]; `below` is the probability after the shorter context."""
        divisor = np.maximum(self.total + self.types, 1)
        p = (self.gram + self.types * below) / divisor
        return np.where(self.total > 0, p, below)


@dataclass(frozen=True)
class Ngrams:
    """The joined counts of texts for contexts of 0 to n - 1 tokens."""

    orders: Sequence["_Order"]
    start: int
    """The token that precedes each piece of a text, n - 1 times."""
    vocabulary: int

    @classmethod
    def count(cls, texts: "Sequence[Pieces]", n: int, start: int, vocabulary: int) -> "Ngrams":
        """Count texts of N tokens in all; ids are below `vocabulary` (at most 2^31).

        Counting takes at most 70 bytes a token, and sorts 2 n times.

        Args:
            n: order, 1 or more. The number of a context combines the shorter context's number and
                one token. So 64 bits are enough for any order.

        >>> ngrams = Ngrams.count([Pieces(np.array([1, 2, 1]))], 2, start=0, vocabulary=4)
        >>> ngrams.p(Pieces(np.array([1, 2]))).tolist()  # after 0: (1 + 1 * 5/10) / 2; after 1: (1 + 1 * 3/10) / 2
        [0.75, 0.65]
        """
        nothing = np.zeros(0, np.int64)
        words = np.concatenate([nothing, *(text.ids for text in texts)]).astype(
            np.int64, copy=False
        )
        orders = list[_Order]()
        shorter = np.zeros(len(words), np.int64)
        for length in range(n):
            back = np.concatenate([nothing, *(text.back(length, start) for text in texts)])
            order, shorter = _Order.count(shorter * vocabulary + back, words, vocabulary)
            orders.append(order)
        return cls(orders, start, vocabulary)

    def p(self, scored: "Pieces") -> np.ndarray:
        """Probability of each token of a text after those before it in its piece, float64 [T]."""
        p = np.full(len(scored.ids), 1 / self.vocabulary)
        contexts = np.zeros(len(scored.ids), np.int64)
        for length, order in enumerate(self.orders):
            for begin in range(0, len(p), TOKENS_AT_ONCE):
                part = slice(begin, begin + TOKENS_AT_ONCE)
                back = scored.back(length, self.start, part.start, part.stop)
                # A context or gram that is not in the text gets the index after the last, whose
                # count is 0.
                context = _find(order.contexts, contexts[part] * self.vocabulary + back)
                gram = _find(order.grams, context * self.vocabulary + scored.ids[part])
                contexts[part] = context
                counts = Counts(order.counts[gram], order.totals[context], order.types[context])
                p[part] = counts.interpolated(p[part])
        return p


@dataclass(frozen=True)
class _Order:
    """Counts of the tokens after each of C contexts of one length."""

    contexts: np.ndarray
    """int64 [C], ascending: V times the place of the context without its first token, plus that
    token.
    """
    grams: np.ndarray
    """int64 [G], ascending: V times the place of a context in `contexts`, plus the token after it.
    """
    counts: np.ndarray
    """c(h, w) of each gram, then 0 for grams that are not in the text, [G + 1]."""
    totals: np.ndarray
    """c(h) of each context, then 0 for contexts that are not in the text, [C + 1]."""
    types: np.ndarray
    """T(h) of each context, then 0, [C + 1]."""

    @classmethod
    def count(
        cls, contexts: np.ndarray, words: np.ndarray, vocabulary: int
    ) -> "tuple[_Order, np.ndarray]":
        """The counts, and the place of the context of each of N words, int64 [N]."""
        distinct, places = np.unique(contexts, return_inverse=True)
        grams, counts = np.unique(places * vocabulary + words, return_counts=True)
        size = len(distinct) + 1
        totals = np.bincount(places, None, size)
        types = np.bincount(grams // vocabulary, None, size)
        return cls(distinct, grams, np.append(counts, 0), totals, types), places


def counting_on(
    stream: "Pieces",
    n: int,
    start: int,
    vocabulary: int,
    restarts: bool = True,
    limit: int | None = None,
) -> np.ndarray:
    """Probability of each token of a text from n-grams counted in the tokens before it, float64
    [T].

    The first token has probability 1/V. Counting sorts 4 n times, and takes about 150 bytes a
    token.

    Args:
        n: order, 1 or more. start: token before a piece. vocabulary: V, at most 2^31.
        restarts: whether counts, like contexts, start again at each piece.
        limit: number of tokens before each token that are counted; None: all of them.

    >>> counting_on(Pieces(np.array([1, 1, 2])), 1, start=0, vocabulary=4).tolist()  # 1/4, (1 + 1/4) / 2, (0 + 1/4) / 3
    [0.25, 0.625, 0.08333333333333333]
    """
    p = np.full(len(stream.ids), 1 / vocabulary)
    contexts = np.zeros(len(stream.ids), np.int64)
    if restarts and stream.first is not None:
        contexts = stream.first
    for length in range(n):
        # renumbered at each length, so that the product with V fits into 64 bits
        contexts = np.unique(
            contexts * vocabulary + stream.back(length, start), return_inverse=True
        )[1]
        grams = contexts * vocabulary + stream.ids.astype(np.int64)
        counts = _counts_before(contexts, grams)
        if limit is not None:
            counts = _counts_of_last(contexts, grams, counts, limit)
        p = counts.interpolated(p)
    return p


def _counts_before(contexts: np.ndarray, grams: np.ndarray) -> Counts:
    """Counts in all tokens before each token; numbers of contexts and grams, int64 [T] each."""
    total, order, begins = ranks(contexts)
    gram = ranks(grams).rank
    new = gram[order] == 0
    before = np.cumsum(new) - new
    types = np.empty_like(total)
    types[order] = before - before[begins]
    return Counts(gram, total, types)


def _counts_of_last(contexts: np.ndarray, grams: np.ndarray, before: Counts, limit: int) -> Counts:
    """Counts in the last `limit` tokens before each token.

    Token j is counted for the tokens up to j + limit. So the counts are those of all tokens before,
    less those that have left. A type leaves when its latest token does. Each token therefore holds
    its type until the same gram comes again, or until it leaves itself, whichever is earlier.

    Args:
        before: counts in all tokens before each token.

    >>> ids = np.array([1, 2, 1])
    >>> zeros = np.zeros(3, np.int64)
    >>> counts = _counts_of_last(zeros, ids, _counts_before(zeros, ids), limit=1)
    >>> counts.total.tolist(), counts.types.tolist(), counts.gram.tolist()
    ([0, 1, 1], [0, 1, 1], [0, 0, 0])
    """
    places = np.arange(len(grams))
    last = places + limit
    order = np.argsort(grams, kind="stable")
    again = np.full(len(grams), len(grams))
    is_same = grams[order[1:]] == grams[order[:-1]]
    again[order[:-1][is_same]] = order[1:][is_same]
    held_until = np.minimum(again, last)
    return Counts(
        before.gram - _num_ended(grams, last),
        before.total - _num_ended(contexts, last),
        # all earlier tokens of the context, less those that hold their type no longer
        before.total - _num_ended(contexts, held_until),
    )


def _num_ended(groups: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For each place t, the number of members of its group whose `last` is before t; int64 [T]."""
    places = np.arange(len(groups))
    numbers = np.unique(groups, return_inverse=True)[1]
    # one number for a pair of a group and a place, in the order of both
    width = len(groups) + 1
    ends = np.sort(numbers * width + np.minimum(last, len(groups)))
    begins = np.searchsorted(ends, numbers * width)
    return np.searchsorted(ends, numbers * width + places) - begins


def _find(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Index in `ascending` of each unsorted value [n], int64 [n]; an index past the last if the
    value is missing.

    Values are sorted first, since a search for similar values in a row stays in the processor's
    cache.
    """
    order = np.argsort(values)
    places = np.empty(len(values), np.int64)
    places[order] = np.searchsorted(ascending, values[order])
    is_found = places < len(ascending)
    is_found[is_found] = ascending[places[is_found]] == values[is_found]
    return np.where(is_found, places, len(ascending))


@dataclass(frozen=True)
class Pieces:
    """Tokens of a text in pieces; no context crosses the beginning of a piece.

    `ids`: integers [T]. `first`: int64 [T], ascending, the index of the first token of each token's
    piece; None: the text is one piece.
    """

    ids: np.ndarray
    first: np.ndarray | None = None

    @classmethod
    def of_documents(cls, ids: np.ndarray, offsets: np.ndarray) -> "Pieces":
        """A text with one piece for each document.

        Args:
            offsets: int64 [D + 1], the start of each document, then the number of tokens.
        """
        return cls(ids, np.repeat(offsets[:-1], np.diff(offsets)).astype(np.int64))

    @classmethod
    def of_places(cls, ids: np.ndarray, places: np.ndarray) -> "Pieces":
        """Pieces of some tokens of a split, from their ascending places, [T] each; consecutive
        tokens are a piece.

        >>> Pieces.of_places(np.array([5, 6, 7]), np.array([2, 3, 9])).first.tolist()
        [0, 0, 2]
        """
        begins = np.flatnonzero(np.diff(places, prepend=-2) != 1)
        return cls(ids, np.repeat(begins, np.diff(begins, append=len(ids))))

    def back(self, length: int, start: int, begin: int = 0, end: int | None = None) -> np.ndarray:
        """The token `length` before each of tokens [begin, end), int64 [end - begin]; 0 for a
        length of 0.

        Args:
            start: token before a piece, repeated as needed.

        >>> Pieces(np.array([3, 4, 5])).back(1, start=0).tolist()
        [0, 3, 4]
        """
        end = len(self.ids) if end is None else min(end, len(self.ids))
        if end <= begin:
            return np.zeros(0, np.int64)
        if length == 0:
            return np.zeros(end - begin, np.int64)
        places = np.arange(begin, end) - length
        piece_starts = np.int64(0) if self.first is None else self.first[begin:end]
        tokens = self.ids[places.clip(0)].astype(np.int64)
        return np.where(places >= piece_starts, tokens, start)


class Ranks(NamedTuple):
    """Ranks of n values among equal values."""

    rank: np.ndarray
    """int64 [n]: number of equal values before each."""
    order: np.ndarray
    """int64 [n]: a stable sort of the values' indices, so that equal values are next to each other.
    """
    begins: np.ndarray
    """int64 [n]: for each entry of `order`, the index in `order` at which its group of equal values
    begins.
    """


def ranks(values: np.ndarray) -> Ranks:
    """Ranks of integers [n] among equal values.

    >>> ranks(np.array([7, 3, 7, 7])).rank.tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    heads = np.flatnonzero(np.diff(values[order], prepend=values[order[:1]] - 1))
    begins = np.repeat(heads, np.diff(heads, append=len(values)))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - begins
    return Ranks(rank, order, begins)
