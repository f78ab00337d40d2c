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

    `ids` integers [N], below `vocabulary`. `lengths` uint8 [N]: tokens of the document before each,
    at most LONGEST.
    """

    ids: np.ndarray
    lengths: np.ndarray
    vocabulary: int

    @classmethod
    def of(cls, ids: Any, offsets: np.ndarray, vocabulary: int) -> "Text":
        """A text from its tokens and the offsets of its documents.

        Args:
            ids: integers [N], an array in memory or one that is read when sliced; a long text is
            memory-mapped.
            offsets: int64 [D + 1], the start of each document; the last is N.
        """

        def context_lengths() -> Iterator[np.ndarray]:
            for positions in ranges(len(ids)):
                # The last document that starts at a position or before it holds it.
                document = np.searchsorted(offsets, positions, side="right") - 1
                tokens_before = positions - offsets[document]
                yield np.minimum(tokens_before, LONGEST).astype(np.uint8)

        lengths = collected(context_lengths(), len(ids), np.dtype(np.uint8))
        return cls(opened(ids), lengths, vocabulary)

    @classmethod
    def beginning(cls, ids: np.ndarray, begins: np.ndarray, vocabulary: int) -> "Text":
        """A text from its tokens and the start of each token's document, `begins` int64 [N]."""
        lengths = np.minimum(np.arange(len(ids)) - begins, LONGEST).astype(np.uint8)
        return cls(ids, lengths, vocabulary)

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

    def words(self, positions: np.ndarray, depth: int | np.ndarray) -> np.ndarray:
        """Symbols `depth` to `depth + per_word - 1` of the contexts of tokens, packed into uint64
        [n].

        >>> text = Text.of(np.array([3, 4, 5]), np.array([0, 3]), vocabulary=14)
        >>> [hex(word) for word in text.words(np.array([0, 2]), 0) >> np.uint64(48)]
        ['0x1000', '0x6510']
        """
        lengths = self.lengths[positions]
        bits = np.uint64(self.bits)
        words = np.zeros(len(positions), np.uint64)
        for offset in range(self.per_word):
            back = depth + offset
            # Near the start of the text this is before token 0; such a token is not used below.
            token_positions = np.maximum(positions - 1 - back, 0)
            tokens = self.ids[token_positions].astype(np.uint64)

            # Behind the tokens of the document there is the border, 1, and then nothing, 0.
            is_border = back == lengths
            symbols = np.where(back < lengths, tokens + np.uint64(2), is_border.astype(np.uint64))
            words = (words << bits) | symbols
        return words

    def equal_symbols(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Number of leading symbols that are equal in two words, int64 [n]."""
        difference = first ^ second
        equal = np.zeros(len(first), np.int64)
        for count in range(1, self.per_word + 1):
            # The leading `count` symbols are equal if nothing is left without those behind them.
            bits_behind = np.uint64(self.bits * (self.per_word - count))
            equal += (difference >> bits_behind) == 0
        return equal


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
    length = array.shape[0]
    starts = range(0, length, AT_ONCE)
    blocks = (np.asarray(array[start : start + AT_ONCE]) for start in starts)
    return collected(blocks, length, np.dtype(array.dtype))


def collected(blocks: Iterator[np.ndarray], length: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Blocks joined to one array [length], in memory; above IN_MEMORY bytes it maps an unnamed
    temporary file.
    """
    if length * dtype.itemsize <= IN_MEMORY:
        # An empty array in front, since no blocks at all cannot be joined.
        empty = np.zeros(0, dtype)
        return np.concatenate([empty, *blocks])

    # The file has no name, so it disappears with the map.
    with TemporaryFile() as file:
        for block in blocks:
            narrow = block.astype(dtype, copy=False)
            file.write(narrow.tobytes())
        file.flush()
        mapped = np.memmap(file, dtype, mode="r", shape=(length,))
        return np.asarray(mapped)


class Order(NamedTuple):
    """Positions of tokens, sorted by their contexts; equal contexts are sorted by position.

    `positions` int64 [m]. `shared` uint8 [m]: symbols that each context shares with the one before it,
    at most LONGEST; the first has 0.
    """

    positions: np.ndarray
    shared: np.ndarray


def sort_contexts(text: Text, positions: np.ndarray) -> Order:
    """Sort the contexts of some tokens; positions int64 [m], rising. It takes 100 bytes for each
    context.

    Contexts are compared word by word, and only ties are compared by the next word. The cost of a
    round is proportional to the ties. There are at most LONGEST / (symbols of a word) rounds, even
    if one token is repeated a million times.

    The contexts of "b a b a", read backwards from each token, are "|", "b|", "ab|" and "bab|",
    where | is the border.

    >>> sort_contexts(Text.of(np.array([1, 0, 1, 0]), np.array([0, 4]), vocabulary=2), np.arange(4))
    Order(positions=array([0, 2, 1, 3]), shared=array([0, 0, 0, 1], dtype=uint8))
    """
    positions = positions.copy()
    shared = np.zeros(len(positions), np.uint8)
    # Ranks that ties leave open [r], and for each the number of its group: the contexts that are
    # equal so far. All contexts are one group at first.
    rows = np.arange(len(positions))
    groups = np.zeros(len(positions), np.int64)
    depth = 0
    while len(rows):
        # Positions rise at first, and stable sorts keep their order, so equal contexts end up
        # sorted by position. Of the first word, all rows are one group: one key is enough.
        words = text.words(positions[rows], depth)
        order = np.argsort(words, kind="stable") if depth == 0 else np.lexsort((words, groups))
        positions[rows] = positions[rows[order]]
        words = words[order]

        # Compare each context with the one before it in its group.
        followers = np.flatnonzero(groups[1:] == groups[:-1]) + 1
        equal = text.equal_symbols(words[followers - 1], words[followers])
        reached = depth + equal
        depth += text.per_word

        # The symbols of a context end with its border, so equal contexts share no more.
        same_word = equal == text.per_word
        ties = followers[same_word]
        tie_positions = positions[rows[ties]]
        lengths = text.lengths[tie_positions].astype(np.int64)
        reached[same_word] = np.minimum(lengths + 1, depth)
        shared[rows[followers]] = np.minimum(reached, LONGEST)

        # Contexts that go on stay open, each with the one that it ties with.
        ties = ties[lengths >= depth]
        is_open = np.zeros(len(rows), bool)
        is_open[ties] = True
        is_open[ties - 1] = True

        # A group begins with an open context that ties with none before it.
        begins_group = is_open.copy()
        begins_group[ties] = False
        groups = np.cumsum(begins_group)[is_open]
        rows = rows[is_open]
    return Order(positions, shared)
