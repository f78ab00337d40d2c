"""An n-gram model that is counted, not trained: interpolated Witten-Bell, what every language model should beat.

After a context h, which stands c(h) times in the text and before T(h) different tokens,

    p(w | h) = (c(h, w) + T(h) p(w | h without its first token)) / (c(h) + T(h)),

where below the empty context stands the uniform 1/V. Nothing is tuned. Sources: Witten and Bell 1991, The
zero-frequency problem, method C; the recursion is that of Chen and Goodman 1998, An Empirical Study of Smoothing
Techniques for Language Modeling, section 2.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ngrams:
    """The counts of a text for contexts of 0 to n - 1 tokens."""

    orders: Sequence["_Order"]
    start: int
    """The token before the text, which stands there n - 1 times."""
    vocabulary: int

    @classmethod
    def count(cls, ids: np.ndarray, n: int, start: int, vocabulary: int) -> "Ngrams":
        """Count ids [N], each below `vocabulary` (at most 2^31); takes 60 bytes a token at most, and sorts n times.

        Args:
            n: from 1 to 3, so that the tokens of a context are one number of 64 bits.
        """
        before = _padded(ids, n, start)
        orders = [_Order.count(_contexts(before, length, n, vocabulary), ids, vocabulary) for length in range(n)]
        return cls(orders, start, vocabulary)

    def log_p(self, ids: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
        """Natural log of the probability of each of ids [T], float64 [T].

        Args:
            before: the tokens before them, of which the last n - 1 are read; None: the text begins here.
        """
        n = len(self.orders)
        earlier = np.zeros(0, np.int64) if before is None else before[max(0, len(before) - n + 1) :]
        stream = _padded(np.concatenate([earlier, ids]), n, self.start)[len(earlier) :]
        p = np.full(len(ids), 1 / self.vocabulary)
        for length, order in enumerate(self.orders):
            p = order.interpolate(_contexts(stream, length, n, self.vocabulary), ids, self.vocabulary, p)
        return np.log(p)


@dataclass(frozen=True)
class _Order:
    """What stands after each of C contexts of one length."""

    contexts: np.ndarray
    """int64 [C], ascending."""
    grams: np.ndarray
    """int64 [G], ascending: the place of a context in `contexts`, times V, plus the token after it."""
    counts: np.ndarray
    """c(h, w) of each gram, [G]."""
    totals: np.ndarray
    """c(h), [C + 1]; 0 for a context that the text does not have, which is the last."""
    types: np.ndarray
    """T(h), [C + 1]."""

    @classmethod
    def count(cls, contexts: np.ndarray, words: np.ndarray, vocabulary: int) -> "_Order":
        known, places = np.unique(contexts, return_inverse=True)
        grams, counts = np.unique(places * vocabulary + words, return_counts=True)
        size = len(known) + 1
        return cls(known, grams, counts, np.bincount(places, None, size), np.bincount(grams // vocabulary, None, size))

    def interpolate(self, contexts: np.ndarray, words: np.ndarray, vocabulary: int, below: np.ndarray) -> np.ndarray:
        """p(w | h) of words after contexts, each [n], where the shorter context gives `below`; float64 [n]."""
        place, known = _find(self.contexts, contexts)
        place = np.where(known, place, len(self.contexts))
        gram, stands = _find(self.grams, place * vocabulary + words)
        count = np.zeros(len(words))
        count[stands] = self.counts[gram[stands]]
        total, types = self.totals[place], self.types[place]
        return np.where(total > 0, (count + types * below) / np.maximum(total + types, 1), below)


def _padded(ids: np.ndarray, n: int, start: int) -> np.ndarray:
    """The n - 1 tokens before the first of ids [T], and these, int64 [n - 1 + T]."""
    return np.concatenate([np.full(n - 1, start, np.int64), ids.astype(np.int64)])


def _contexts(stream: np.ndarray, length: int, n: int, vocabulary: int) -> np.ndarray:
    """The `length` tokens before each token of a stream but its first n - 1, as one number each, int64 [T]."""
    last = len(stream) - n + 1
    numbers = np.zeros(last, np.int64)
    for back in range(length, 0, -1):
        numbers = numbers * vocabulary + stream[n - 1 - back : n - 1 - back + last]
    return numbers


def _find(ascending: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each value would stand among some, and whether it does."""
    places = np.searchsorted(ascending, values)
    stands = places < len(ascending)
    stands[stands] = ascending[places[stands]] == values[stands]
    return places, stands
