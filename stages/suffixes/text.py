"""Tokens of a text, and the contexts before them as machine words that compare as the contexts do.

The context of token t is read backwards: token t - 1, then t - 2, back to where its document begins. There it has one
more symbol, which stands for the border. Shapes: N tokens, n contexts.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
    def of(cls, ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> "Text":
        """A text whose documents begin at `offsets`, int64 [D + 1], the last of which is N."""
        return cls.beginning(ids, np.repeat(offsets[:-1], np.diff(offsets)), vocabulary)

    @classmethod
    def beginning(cls, ids: np.ndarray, begins: np.ndarray, vocabulary: int) -> "Text":
        """A text of tokens whose document begins at `begins`, int64 [N]."""
        known = np.arange(len(ids))
        known -= begins
        np.minimum(known, LONGEST, out=known)
        return cls(ids, known.astype(np.uint8), vocabulary)

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

    def ended(self, places: np.ndarray, depth: int | np.ndarray) -> np.ndarray:
        """Whether contexts have no symbol at a depth any more, bool [n]."""
        return self.known[places] < depth

    def equal_symbols(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """How many leading symbols of words are equal, int64 [n]."""
        differing = first ^ second
        shifts = (np.uint64(self.bits * (self.per_word - count)) for count in range(1, self.per_word + 1))
        return sum(((differing >> shift) == 0 for shift in shifts), np.zeros(len(first), np.int64))
