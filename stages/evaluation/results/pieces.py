"""A text in pieces, whose tokens know the tokens before them in their own piece."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pieces:
    """Tokens of a text; nothing is known of what is before a piece.

    `ids` [T]: an integer a token. `first` int64 [T]: index of the first token of each one's piece, which never falls;
    None: the text is one piece. `places` int64 [T], rising: place of each token in the split that it is of; None: its
    index.
    """

    ids: np.ndarray
    first: np.ndarray | None = None
    places: np.ndarray | None = None

    @classmethod
    def of_documents(cls, ids: np.ndarray, offsets: np.ndarray) -> "Pieces":
        """A piece a document.

        Args:
            offsets: int64 [D + 1], where documents start, and the number of tokens.
        """
        return cls(ids, np.repeat(offsets[:-1], np.diff(offsets)).astype(np.int64))

    @classmethod
    def of_places(cls, ids: np.ndarray, places: np.ndarray) -> "Pieces":
        """Some tokens of a split, [T] of each; a piece is a run of neighbours.

        >>> Pieces.of_places(np.array([5, 6, 7]), np.array([2, 3, 9])).first.tolist()
        [0, 0, 2]
        """
        begins = np.flatnonzero(np.diff(places, prepend=-2) != 1)
        return cls(ids, np.repeat(begins, np.diff(begins, append=len(ids))), places)

    def contexts(self, length: int, start: int, vocabulary: int, begin: int = 0, end: int | None = None) -> np.ndarray:
        """The `length` tokens before each of tokens [begin, end), as one number each, int64 [end - begin].

        Args:
            start: token before a piece, as often as needed.
            vocabulary: V; the number is below V ** length, so length is at most 2 for V of 31 bits.

        >>> Pieces(np.array([3, 4, 5])).contexts(2, start=0, vocabulary=10).tolist()
        [0, 3, 34]
        """
        end = len(self.ids) if end is None else min(end, len(self.ids))
        at = np.arange(begin, end)
        first = np.int64(0) if self.first is None else self.first[begin:end]
        numbers = np.zeros(len(at), np.int64)
        for back in range(length, 0, -1):
            before = self.ids[(at - back).clip(0)].astype(np.int64) if len(at) else numbers
            numbers = numbers * vocabulary + np.where(at - back >= first, before, start)
        return numbers
