"""Tokens of a text, the contexts before them as machine words that compare as the contexts do, and these sorted.

The context of token t is read backwards: token t - 1, then t - 2, back to where its document begins. There it has one
more symbol, which stands for the border. Shapes: N tokens, n contexts, m of them sorted together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from stages.suffixes import AT_ONCE, IN_MEMORY

LONGEST = 255
"""Tokens that contexts are compared by: longer matches count as this long."""


@dataclass(frozen=True)
class Text:
    """Tokens, and how many tokens of its document stand before each.

    `ids` integers [N], below `vocabulary`. `known` uint8 [N]: tokens before each in its document, LONGEST at most.
    """

    ids: np.ndarray
    known: np.ndarray
    vocabulary: int

    @classmethod
    def of(cls, ids: Any, offsets: np.ndarray, vocabulary: int) -> "Text":
        """A text whose documents begin at `offsets`, int64 [D + 1], the last of which is N.

        Args:
            ids: integers [N], an array or what is read as it is sliced; a long text is mapped.
        """

        def known() -> Iterator[np.ndarray]:
            for places in ranges(len(ids)):
                begins = offsets[np.searchsorted(offsets, places, side="right") - 1]
                yield np.minimum(places - begins, LONGEST).astype(np.uint8)

        return cls(opened(ids), collected(known(), len(ids), np.dtype(np.uint8)), vocabulary)

    @classmethod
    def beginning(cls, ids: np.ndarray, begins: np.ndarray, vocabulary: int) -> "Text":
        """A text of tokens whose document begins at `begins`, int64 [N]."""
        return cls(ids, np.minimum(np.arange(len(ids)) - begins, LONGEST).astype(np.uint8), vocabulary)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def bits(self) -> int:
        """Bits of a symbol: 0 for nothing, 1 for a border, a token's id + 2."""
        return int(self.vocabulary + 1).bit_length()

    @cached_property
    def per_word(self) -> int:
        """Symbols of a word."""
        return 64 // self.bits

    def words(self, places: np.ndarray, depth: int | np.ndarray) -> np.ndarray:
        """Symbols `depth` to `depth + per_word - 1` of the contexts before tokens, uint64 [n].

        >>> text = Text.of(np.array([3, 4, 5]), np.array([0, 3]), vocabulary=14)
        >>> [hex(word) for word in text.words(np.array([0, 2]), 0) >> np.uint64(48)]
        ['0x1000', '0x6510']
        """
        known, bits = self.known[places], np.uint64(self.bits)
        word = np.zeros(len(places), np.uint64)
        for offset in range(self.per_word):
            back = depth + offset
            symbol = self.ids[np.maximum(places - 1 - back, 0)].astype(np.uint64) + np.uint64(2)
            word = (word << bits) | np.where(back < known, symbol, (back == known).astype(np.uint64))
        return word

    def equal_symbols(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """How many leading symbols of words are equal, int64 [n]."""
        differing = first ^ second
        shifts = (np.uint64(self.bits * (self.per_word - count)) for count in range(1, self.per_word + 1))
        return sum(((differing >> shift) == 0 for shift in shifts), np.zeros(len(first), np.int64))


def ranges(stop: int) -> Iterator[np.ndarray]:
    """0 to stop - 1, AT_ONCE at a time, int64."""
    for start in range(0, stop, AT_ONCE):
        yield np.arange(start, min(start + AT_ONCE, stop))


def opened(array: Any) -> np.ndarray:
    """The values of an array that is read as it is sliced, mapped where they are many; an array in memory as it is."""
    if isinstance(array, np.ndarray):
        return array
    blocks = (np.asarray(array[start : start + AT_ONCE]) for start in range(0, array.shape[0], AT_ONCE))
    return collected(blocks, array.shape[0], np.dtype(array.dtype))


def collected(blocks: Iterator[np.ndarray], length: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Blocks one after the other [length]: in memory, or above IN_MEMORY bytes in a file that nobody else sees."""
    if length * dtype.itemsize <= IN_MEMORY:
        return np.concatenate([np.zeros(0, dtype), *blocks])
    with TemporaryFile() as file:  # it has no name, so it is gone when the map is
        for block in blocks:
            file.write(block.astype(dtype, copy=False).tobytes())
        file.flush()
        return np.asarray(np.memmap(file, dtype, mode="r", shape=(length,)))


class Order(NamedTuple):
    """Places of tokens, by their contexts; equal ones by place.

    `places` int64 [m]. `shared` uint8 [m]: symbols that each context shares with the one before it, LONGEST at most;
    the first has 0.
    """

    places: np.ndarray
    shared: np.ndarray


def sort_contexts(text: Text, places: np.ndarray) -> Order:
    """Sort the contexts of some tokens; places int64 [m], rising. It takes 100 bytes a context.

    Words of a few symbols are compared; of contexts that tie the next words are, and so on. A round costs what still
    ties. There are LONGEST / (symbols of a word) rounds at most, so one token repeated a million times costs no more.

    The contexts of "b a b a" are, backwards from each token, "|", "b|", "ab|" and "bab|", where | is the border.

    >>> sort_contexts(Text.of(np.array([1, 0, 1, 0]), np.array([0, 4]), vocabulary=2), np.arange(4))
    Order(places=array([0, 2, 1, 3]), shared=array([0, 0, 0, 1], dtype=uint8))
    """
    places, shared = places.copy(), np.zeros(len(places), np.uint8)
    open_, group, depth = np.arange(len(places)), np.zeros(len(places), np.int64), 0
    while len(open_):
        words = text.words(places[open_], depth)
        # places rise at first, and stable sorts keep that: equal contexts end by place
        by = np.argsort(words, kind="stable") if depth == 0 else np.lexsort((words, group))
        places[open_], words = places[open_[by]], words[by]
        beside = np.flatnonzero(group[1:] == group[:-1]) + 1  # those with another of their group before them
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
