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
    """A token's text and the text around it, white space as it was; of a word tokenizer, a space between tokens."""

    before: str
    text: str
    after: str


@dataclass(frozen=True)
class Span:
    """Tokens [start, stop) of a split, the one at `place` in view."""

    start: int
    place: int
    stop: int


class Contexts:
    """Texts around tokens of a split, none from other documents."""

    def __init__(self, tokens: Artifact, places: Places, around: int | None) -> None:
        """Read the tokenizer; `around` None: as many tokens as fill a line."""
        from stages.text.given import open_tokenizer

        self._tokenizer = open_tokenizer(tokens.file("tokenizer.json")).huggingface()
        self.places = places
        self._around = AROUND.get(tokens.metrics["tokenizer"], AROUND_OTHERS) if around is None else around

    def read(self, places: np.ndarray) -> list[InContext]:
        """The tokens at some places [n]."""
        if not len(places):
            return []
        spans = self._spans(places)
        first, last = min(span.start for span in spans), max(span.stop for span in spans)
        if last - first <= 4 * len(places) * (2 * self._around + 1):
            ids = np.asarray(self.places.split.ids[first:last])
            return self._texts([ids[s.start - first : s.stop - first] for s in spans], spans)
        return self._texts([np.asarray(self.places.split.ids[s.start : s.stop]) for s in spans], spans)

    def _spans(self, places: np.ndarray) -> list[Span]:
        documents = self.places.documents(places)
        starts = np.maximum(places - self._around, self.places.doc_offsets[documents])
        stops = np.minimum(places + self._around + 1, self.places.doc_offsets[documents + 1])
        return [Span(*row) for row in np.stack([starts, places, stops], axis=1).tolist()]

    def _texts(self, ids: Sequence[np.ndarray], spans: Sequence[Span]) -> list[InContext]:
        """Decode each span up to its token, with it, and whole: what each adds is that part's text."""
        cuts = [
            (span.place - span.start, span.place - span.start + 1, len(piece))
            for span, piece in zip(spans, ids, strict=True)
        ]
        prefixes = [piece[:cut].tolist() for piece, at in zip(ids, cuts, strict=True) for cut in at]
        decoded = self._tokenizer.decode_batch(prefixes, skip_special_tokens=False)
        return [
            self._parts(piece, at, decoded[3 * number : 3 * number + 3])
            for number, (piece, at) in enumerate(zip(ids, cuts, strict=True))
        ]

    def _parts(self, ids: np.ndarray, cuts: tuple[int, int, int], decoded: Sequence[str]) -> InContext:
        before, with_token, whole = decoded
        if with_token.startswith(before) and whole.startswith(with_token):
            return InContext(before, with_token[len(before) :], whole[len(with_token) :])
        start, stop, _ = cuts
        pieces = [ids[:start].tolist(), ids[start:stop].tolist(), ids[stop:].tolist()]
        return InContext(*self._tokenizer.decode_batch(pieces, skip_special_tokens=False))
