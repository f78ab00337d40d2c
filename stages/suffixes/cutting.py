"""Contexts cut into shards that are sorted apart, and follow each other in the order.

Borders are some contexts of a sample, which is sorted. A shard holds those between two borders. So all shards are
about as large, even where one token is repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.suffixes.matches import SortedContexts
from stages.suffixes.order import sort_contexts
from stages.suffixes.text import Text

SAMPLED = 256
"""Contexts of the sample a shard: sizes then differ by a sixteenth (one standard deviation)."""


@dataclass(frozen=True)
class Stretches:
    """Tokens of a text from `starts` up to `stops`, int64 [R], in order; M of them."""

    starts: np.ndarray
    stops: np.ndarray

    @cached_property
    def before(self) -> np.ndarray:
        """Tokens in the stretches before each, and in all, int64 [R + 1]."""
        return np.append(0, np.cumsum(self.stops - self.starts))

    def __len__(self) -> int:
        return int(self.before[-1])

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Places in the text of the tokens that are counted from 0 to M - 1, int64.

        >>> Stretches(np.array([2, 7]), np.array([4, 9])).places(np.arange(4)).tolist()
        [2, 3, 7, 8]
        """
        stretch = np.searchsorted(self.before, numbers, side="right") - 1
        return self.starts[stretch] + numbers - self.before[stretch]


def borders(text: Text, held: Stretches, shards: int) -> SortedContexts:
    """Contexts that part those of some tokens into shards of about equal size.

    Each border is the last context of its shard. The same text gives the same borders.
    """
    numbers = np.random.default_rng(0).integers(0, len(held), SAMPLED * shards) if shards > 1 else np.zeros(0, int)
    order, shared = sort_contexts(text, np.unique(held.places(numbers)))
    kept = np.arange(1, shards) * len(order) // shards
    return SortedContexts(text, order[kept], shared[kept])


def grouped(bounds: SortedContexts, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places by shard, in each as they came, and how many go to each, int64 [shards].

    Most first words are between those of two borders; other contexts are compared as far as it takes.
    """
    words, limits = bounds.text.words(places, 0), bounds.text.words(bounds.order, 0)
    shard = np.searchsorted(limits, words)
    near = np.flatnonzero(shard != np.searchsorted(limits, words, side="right"))
    shard[near] = bounds.locate(bounds.text, places[near]).place
    return places[np.argsort(shard, kind="stable")], np.bincount(shard, minlength=len(limits) + 1)


def taken(parts: Sequence[tuple[np.ndarray, np.ndarray]], shard: int) -> np.ndarray:
    """The places of one shard, of parts as `grouped` gives them."""
    starts = [int(counts[:shard].sum()) for _, counts in parts]
    pieces = [places[n : n + int(counts[shard])] for n, (places, counts) in zip(starts, parts, strict=True)]
    return np.concatenate(pieces).astype(np.int64)
