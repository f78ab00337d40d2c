"""Tokens as people read them, with the text around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.comparison.places import Places

AROUND = {"char": 40, "byte": 40}
AROUND_OTHERS = 10
"""Tokens that fill about half a line, before and after."""


class InContext(NamedTuple):
    """A token's text and the text around it; a part of a character by itself is as the vocabulary spells it."""

    before: str
    text: str
    after: str


@dataclass(frozen=True)
class Span:
    """Tokens [start, stop) of a split, the one at `place` in view."""

    start: int
    place: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class Contexts:
    """Texts around tokens of a split, none from other documents."""

    def __init__(self, tokens: Artifact, places: Places, around: int | None) -> None:
        """Read the tokenizer; `around` None: as many tokens as fill a line."""
        from stages.text.decoding import TokenText

        self.places = places
        self._text = TokenText(tokens)
        self._around = AROUND.get(tokens.metrics["tokenizer"], AROUND_OTHERS) if around is None else around

    def read(self, places: np.ndarray) -> list[InContext]:
        """The tokens at some places [n]; those that lie close together are read as one text."""
        spans = self._spans(places)
        if not spans:
            return []
        first, stop = min(span.start for span in spans), max(span.stop for span in spans)
        if stop - first > sum(span.length for span in spans):
            return self._apart(spans)
        ids = np.asarray(self.places.split.ids[first:stop]).tolist()
        pieces = self._text.pieces(ids)
        parts = [slice(span.start - first, span.stop - first) for span in spans]
        return [self._in_context(s, ids[part], pieces[part]) for s, part in zip(spans, parts, strict=True)]

    def _apart(self, spans: Sequence[Span]) -> list[InContext]:
        wanted = np.concatenate([np.arange(span.start, span.stop) for span in spans])
        ids = np.asarray(self.places.split.ids.vindex[wanted])
        ends = np.cumsum([span.length for span in spans])
        each = [part.tolist() for part in np.split(ids, ends[:-1])]
        return [self._in_context(s, own, self._text.pieces(own)) for s, own in zip(spans, each, strict=True)]

    def _spans(self, places: np.ndarray) -> list[Span]:
        documents = self.places.documents(places)
        starts = np.maximum(places - self._around, self.places.doc_offsets[documents])
        stops = np.minimum(places + self._around + 1, self.places.doc_offsets[documents + 1])
        return [Span(*row) for row in np.stack([starts, places, stops], axis=1).tolist()]

    def _in_context(self, span: Span, ids: list[int], pieces: list[str]) -> InContext:
        at = span.place - span.start
        text = pieces[at] or self._text.label(ids[at])
        return InContext("".join(pieces[:at]), text, "".join(pieces[at + 1 :]))
