"""From places in a split to the text that stands there: one class for all who show tokens in their context."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stages.text.decoding import TokenText
from stages.text.names import DocumentNames

BLOCK = 1 << 16
"""Ids read at a time."""
BLOCKS_KEPT = 64
AROUND = {"char": 40, "byte": 40}
AROUND_OTHERS = 10
"""Tokens of a tokenizer that fill about half a line."""


@dataclass(frozen=True)
class Excerpt:
    """A token of a split, where it stands, and the text around it, of its own document.

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
    name: str | None = None
    """Name of its document; None where it is not known."""

    @property
    def place(self) -> str:
        """Where the token stands: `train, document 3 (a.txt), token 7`."""
        called = f" ({self.name})" if self.name else ""
        return f"{self.split}, document {self.document}{called}, token {self.offset}"


class _Span(NamedTuple):
    """Tokens [first, last) around `row`, all of one document, which starts at `start`."""

    row: int
    document: int
    start: int
    first: int
    last: int


class SplitText:
    """The text of one split, read where it is asked for."""

    def __init__(
        self, split: str, ids: Any, doc_offsets: Any, text: TokenText, names: DocumentNames | None = None
    ) -> None:
        """Args:
        split: what it is called.
        ids: integers [T], a NumPy or Zarr array.
        doc_offsets: int64 [D + 1], where documents start, and the end.
        text: the tokenizer.
        names: of the documents.
        """
        self.split, self._text, self._names = split, text, names or DocumentNames(())
        self._offsets = np.asarray(doc_offsets[:])

        @lru_cache(BLOCKS_KEPT)
        def block(number: int) -> np.ndarray:
            return np.asarray(ids[number * BLOCK : (number + 1) * BLOCK])

        self._block = block

    @classmethod
    def of(cls, group: Any, split: str, text: TokenText, names: DocumentNames | None = None) -> "SplitText":
        """A split of a group `tokens.zarr`, or of a passage."""
        return cls(split, group[f"{split}/ids"], group[f"{split}/doc_offsets"], text, names)

    def at(self, row: int, before: int = 12, after: int = 4) -> Excerpt:
        """Token `row`, with so many tokens of its document around it."""
        (excerpt,) = self.excerpts([row], before, after)
        return excerpt

    def excerpts(self, rows: Sequence[int] | np.ndarray, before: int, after: int) -> list[Excerpt]:
        """The tokens at some rows, in any order; those that lie close together are decoded as one text."""
        spans = self._spans(np.asarray(rows, np.int64), before, after)
        if not spans:
            return []
        first, last = min(span.first for span in spans), max(span.last for span in spans)
        if len(spans) > 1 and last - first <= sum(span.last - span.first for span in spans):
            ids = self._ids(first, last)
            pieces = self._text.pieces(ids)
            parts = [slice(span.first - first, span.last - first) for span in spans]
            return [self._excerpt(span, ids[part], pieces[part]) for span, part in zip(spans, parts, strict=True)]
        each = [self._ids(span.first, span.last) for span in spans]
        return [self._excerpt(span, ids, self._text.pieces(ids)) for span, ids in zip(spans, each, strict=True)]

    def _spans(self, rows: np.ndarray, before: int, after: int) -> list[_Span]:
        documents = np.searchsorted(self._offsets, rows, side="right") - 1
        starts, stops = self._offsets[documents], self._offsets[documents + 1]
        columns = rows, documents, starts, np.maximum(rows - before, starts), np.minimum(rows + 1 + after, stops)
        return [_Span(*row) for row in np.stack(columns, axis=1).tolist()]

    def _excerpt(self, span: _Span, ids: list[int], pieces: list[str]) -> Excerpt:
        place = span.row - span.first
        return Excerpt(
            split=self.split,
            row=span.row,
            document=span.document,
            offset=span.row - span.start,
            before="".join(pieces[:place]),
            token=pieces[place] if pieces[place].strip() else self._text.label(ids[place]),
            after="".join(pieces[place + 1 :]),
            name=self._names.of(span.document),
        )

    def _ids(self, start: int, stop: int) -> list[int]:
        parts = [
            self._block(number)[max(0, start - number * BLOCK) : stop - number * BLOCK]
            for number in range(start // BLOCK, (stop - 1) // BLOCK + 1)
        ]
        return [int(id) for id in np.concatenate(parts)]


def half_a_line(tokenizer: str) -> int:
    """Tokens of a tokenizer that fill about half a line."""
    return AROUND.get(tokenizer, AROUND_OTHERS)
