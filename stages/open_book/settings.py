"""Settings of an open book. Free of torch."""

from typing import Annotated, Literal

from pydantic import Field

from stages.config import Settings, Spelling

OPEN_BOOK = "open book"
"""Name of the first row of a report, and of what stands below memories."""


class OpenBook(Settings):
    """How passages are cut, chosen and read."""

    stride: Annotated[int, Field(ge=1, le=1 << 14)] = 32
    """Tokens that are scored with one choice of passages."""
    query: Annotated[int, Field(ge=1, le=1 << 14)] = 32
    """Tokens before the stride that passages are chosen by."""
    passage: Annotated[int, Field(ge=1, le=1 << 16)] = 256
    """Maximum number of tokens of a passage."""
    passages: Annotated[int, Field(ge=1, le=64), Spelling("N", flag="open_book_passages")] = 1
    """Passages of an open book before the context."""
    by: Literal["bm25", "keys"] = "bm25"
    """Way to choose passages: by terms of the query, or by the index' hits of its tokens."""

    @property
    def room(self) -> int:
        """Tokens of the window that passages may take."""
        return self.passage * self.passages
