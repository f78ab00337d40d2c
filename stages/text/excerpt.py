"""From a place in a split to the text that stands there: row j of a datastore is the context of token j."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from stages.text.decoding import TokenText

BLOCK = 1 << 16
"""Ids read at a time."""
BLOCKS_KEPT = 64


@dataclass(frozen=True)
class Source:
    """A token of a corpus, where it stands, and the text around it, of its own document.

    `row`: place in the split; `document`: number of its document there, `offset`: tokens from the document's start.
    `before`, `token` and `after` join to the text, but where the token is white space, and spelled out.
    """

    split: str
    row: int
    document: int
    offset: int
    before: str
    token: str
    after: str


class SplitText:
    """The text of one split, read where it is asked for."""

    def __init__(self, split: str, ids: Any, doc_offsets: Any, text: TokenText) -> None:
        """Args:
        split: what it is called.
        ids: integers [T], a NumPy or Zarr array.
        doc_offsets: int [D + 1], where documents start, and the end.
        text: the tokenizer.
        """
        self.split, self._text = split, text
        self._offsets = np.asarray(doc_offsets[:])

        @lru_cache(BLOCKS_KEPT)
        def block(number: int) -> np.ndarray:
            return np.asarray(ids[number * BLOCK : (number + 1) * BLOCK])

        self._block = block

    @classmethod
    def of(cls, group: Any, split: str, text: TokenText) -> "SplitText":
        """A split of a group `tokens.zarr`, or of a passage."""
        return cls(split, group[f"{split}/ids"], group[f"{split}/doc_offsets"], text)

    def at(self, row: int, before: int = 12, after: int = 4) -> Source:
        """Token `row`, with so many tokens of its document around it."""
        document = int(np.searchsorted(self._offsets, row, side="right")) - 1
        start, stop = int(self._offsets[document]), int(self._offsets[document + 1])
        first, last = max(start, row - before), min(stop, row + 1 + after)
        ids = self._ids(first, last)
        pieces = self._text.pieces(ids)
        place = row - first
        return Source(
            split=self.split,
            row=row,
            document=document,
            offset=row - start,
            before="".join(pieces[:place]),
            token=pieces[place] if pieces[place].strip() else self._text.label(ids[place]),
            after="".join(pieces[place + 1 :]),
        )

    def _ids(self, start: int, stop: int) -> list[int]:
        parts = [
            self._block(number)[max(0, start - number * BLOCK) : stop - number * BLOCK]
            for number in range(start // BLOCK, (stop - 1) // BLOCK + 1)
        ]
        return [int(id) for id in np.concatenate(parts)]
