"""Tokens of a text, their contexts as machine words in the same order, and sorting of contexts.

The context of token t is read backwards: token t - 1, then t - 2, back to the start of its
document. It ends with one more symbol for the border. Shapes: N tokens, n contexts, m contexts that
are sorted together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from stages.suffixes import AT_ONCE, IN_MEMORY

LONGEST = 255
"""Most tokens of contexts that are compared; longer matches count as this length."""


@dataclass(frozen=True)
class Text:
    """Tokens of a text, and the length of the context of each.

    `ids` integers [N], below `vocabulary`. `known` uint8 [N]: tokens of the document before each,
    at most LONGEST.
    """

    ids: np.ndarray
    known: np.ndarray
    vocabulary: int

    @classmethod
    def of(cls, ids: Any, offsets: np.ndarray, vocabulary: int) -> "Text":
        """A text from its tokens and the offsets of its documents.

        Args:
            ids: integers [N], an array in memory or one that is read when sliced; a long text is
            memory-mapped.
            offsets: int64 [D + 1], the start of each document; the last is N.
        """

        def known() -> Iterator[np.ndarray]:
            for places in ranges(len(ids)):
                begins = offsets[np.searchsorted(offsets, places, side="right") - 1]
                yield np.minimum(places - begins, LONGEST).astype(np.uint8)

        return cls(opened(ids), collected(known(), len(ids), np.dtype(np.uint8)), vocabulary)

    @classmethod
    def beginning(cls, ids: np.ndarray, begins: np.ndarray, vocabulary: int) -> "Text":
        """A text from its tokens and the start of each token's document, `begins` int64 [N]."""
        return cls(
            ids, np.minimum(np.arange(len(ids)) - begins, LONGEST).astype(np.uint8), vocabulary
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def bits(self) -> int:
        """Bits of a symbol. Symbols are 0 for nothing, 1 for a border, and a token's id + 2."""
        return int(self.vocabulary + 1).bit_length()

    @cached_property
    def per_word(self) -> int:
        """Symbols in a 64-bit word."""
        return 64 // self.bits

    def words(self, places: np.ndarray, depth: int | np.ndarray) -> np.ndarray:
        """Symbols `depth` to `depth + per_word - 1` of the contexts of tokens, packed into uint64
        [n].

        >>> text = Text.of(np.array([3, 4, 5]), np.array([0, 3]), vocabulary=14)
        >>> [hex(word) for word in text.words(np.array([0, 2]), 0) >> np.uint64(48)]
        ['0x1000', '0x6510']
        """
        known, bits = self.known[places], np.uint64(self.bits)
        word = np.zeros(len(places), np.uint64)
        for offset in range(self.per_word):
            back = depth + offset
            symbol = self.ids[np.maximum(places - 1 - back, 0)].astype(np.uint64) + np.uint64(2)
            word = (word << bits) | np.where(
                back < known, symbol, (back == known).astype(np.uint64)
            )
        return word

    def equal_symbols(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Number of leading symbols that are equal in two words, int64 [n]."""
        differing = first ^ second
        shifts = (
            np.uint64(self.bits * (self.per_word - count)) for count in range(1, self.per_word + 1)
        )
        return sum(((differing >> shift) == 0 for shift in shifts), np.zeros(len(first), np.int64))


def ranges(stop: int) -> Iterator[np.ndarray]:
    """0 to stop - 1, AT_ONCE at a time, int64."""
    for start in range(0, stop, AT_ONCE):
        yield np.arange(start, min(start + AT_ONCE, stop))


def opened(array: Any) -> np.ndarray:
    """Read a stored array in slices; a large one becomes a memory map. An array in memory is
    returned unchanged.
    """
    if isinstance(array, np.ndarray):
        return array
    blocks = (
        np.asarray(array[start : start + AT_ONCE]) for start in range(0, array.shape[0], AT_ONCE)
    )
    return collected(blocks, array.shape[0], np.dtype(array.dtype))


def collected(blocks: Iterator[np.ndarray], length: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Blocks joined to one array [length], in memory; above IN_MEMORY bytes it maps an unnamed
    temporary file.
    """
    if length * dtype.itemsize <= IN_MEMORY:
        return np.concatenate([np.zeros(0, dtype), *blocks])
    with TemporaryFile() as file:  # it has no name, so it disappears with the map
        for block in blocks:
            file.write(block.astype(dtype, copy=False).tobytes())
        file.flush()
        return np.asarray(np.memmap(file, dtype, mode="r", shape=(length,)))


class Order(NamedTuple):
    """Places of tokens, sorted by their contexts; equal contexts are sorted by place.

    `places` int64 [m]. `shared` uint8 [m]: symbols that each context shares with the one before it,
    at most LONGEST; the first has 0.
    """

    places: np.ndarray
    shared: np.ndarray


def sort_contexts(text: Text, places: np.ndarray) -> Order:
    """Sort the contexts of some tokens; places int64 [m], rising. It takes 100 bytes for each
    context.

    Contexts are compared word by word, and only ties are compared by the next word. The cost of a
    round is proportional to the ties. There are at most LONGEST / (symbols of a word) rounds, even
    if one token is repeated a million times.

    The contexts of "b a b a", read backwards from each token, are "|", "b|", "ab|" and "bab|",
    where | is the border.

    >>> sort_contexts(Text.of(np.array([1, 0, 1, 0]), np.array([0, 4]), vocabulary=2), np.arange(4))
    Order(places=array([0, 2, 1, 3]), shared=array([0, 0, 0, 1], dtype=uint8))
    """
    places, shared = places.copy(), np.zeros(len(places), np.uint8)
    open_, group, depth = np.arange(len(places)), np.zeros(len(places), np.int64), 0
    while len(open_):
        words = text.words(places[open_], depth)
        # places rise at first, and stable sorts keep their order, so equal contexts end up sorted
        # by place
        by = np.argsort(words, kind="stable") if depth == 0 else np.lexsort((words, group))
        places[open_], words = places[open_[by]], words[by]
        beside = (
            np.flatnonzero(group[1:] == group[:-1]) + 1
        )  # contexts that follow another of their group
        equal = text.equal_symbols(words[beside - 1], words[beside])
        depth += text.per_word
        ties = beside[equal == text.per_word]
        known = text.known[places[open_[ties]]].astype(np.int64)
        reached = depth - text.per_word + equal
        reached[equal == text.per_word] = np.minimum(known + 1, depth)
        shared[open_[beside]] = np.minimum(reached, LONGEST)
        ties = ties[known >= depth]
        still = np.zeros(len(open_), bool)
        still[ties] = still[ties - 1] = True
        first = still.copy()
        first[ties] = False
        open_, group = open_[still], np.cumsum(first)[still]
    return Order(places, shared)
