"""Text at given places of a split, for everything that shows tokens in their context."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.errors import content_of
from stages.text.documents import DocumentNames
from stages.text.tokenizer import UNK

UNFINISHED = "\ufffd"
"""The decoder gives this for bytes that do not form a complete character yet."""


class TokenText:
    """Encoder and decoder of a tokenizer."""

    def __init__(self, file: Path, metrics: Mapping[str, Any]) -> None:
        """Args:
        file: a `tokenizer.json`.
        metrics: metrics of `tokenize`, with `eos_id` and `eos_after`.
        """
        from stages.text.huggingface import load_tokenizer

        self._file = file
        self._tokenizer = load_tokenizer(file)
        self.vocabulary_size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self.eos: int = metrics["eos_id"]
        self.start: int | None = metrics.get("start_id")
        """First input of an empty text for a pretrained tokenizer; other texts begin as they are.
        None: every text begins with `<eos>`, as in training.
        """
        self.eos_is_newline = metrics["eos_after"] == "line"
        """Whether `<eos>` stands for the end of a line."""

    def ids(self, text: str) -> list[int]:
        """Token ids of a text. Unknown words become `<unk>`; no `<eos>` is added."""
        with content_of(self._file, Exception):  # the library has no exception class of its own
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
            return ids

    def prompt_ids(self, text: str) -> list[int]:
        """Token ids of a text to go on from, after those that its own tokenizer puts before it."""
        ids = self.ids(text)
        with content_of(self._file, Exception):
            whole: list[int] = self._tokenizer.encode(text).ids
        places = range(len(whole) - len(ids) + 1)
        first = next((place for place in places if whole[place : place + len(ids)] == ids), 0)
        return whole[:first] + ids

    @cached_property
    def special(self) -> tuple[int, ...]:
        """Ids of tokens without text: `<eos>`, `<unk>`, padding, languages."""
        ids = {self.eos}
        for id, token in self._tokenizer.get_added_tokens_decoder().items():
            if token.special:
                ids.add(id)
        # a model may call its unknown token otherwise
        for name in (getattr(self._tokenizer.model, "unk_token", None), UNK):
            unknown = None if name is None else self._tokenizer.token_to_id(name)
            if unknown is not None:
                ids.add(unknown)
        return tuple(sorted(ids))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Text that each of the consecutive tokens adds; a character counts for the token that
        completes it.
        """
        stream = TextStream(self)
        brought = [stream.add(id) for id in ids]
        return [*brought[:-1], brought[-1] + stream.end()] if brought else []

    def label(self, id: int) -> str:
        r"""Text of one token by itself; part of a character, as in Chinese with few types, reads
        `\xe5\x85`.
        """
        text = self.decoded([id])
        if text and UNFINISHED not in text:
            return text
        token = str(self._tokenizer.id_to_token(id))
        return self._bytes_of(token).decode("utf-8", "backslashreplace") if text else token

    @cached_property
    def _bytes_of(self) -> Callable[[str], bytes]:
        from stages.text.words import speller

        return speller(json.loads(self._tokenizer.to_str()))

    def decoded(self, ids: list[int]) -> str:
        """The text of tokens as the tokenizer itself joins them, `<eos>` spelled out."""
        with content_of(self._file, Exception):
            text: Any = self._tokenizer.decode(ids, skip_special_tokens=False)
            return str(text)


class TextStream:
    """Text of tokens that arrive one by one; text once given out never changes.

    The text of a token may depend on the token before it (spaces between words). A character may
    span several tokens. So each new token is decoded with the last ones, and withheld while a
    character is incomplete.
    """

    def __init__(self, text: TokenText) -> None:
        self._text = text
        self._before: list[int] = []
        self._pending: list[int] = []

    def add(self, id: int) -> str:
        """Text that a token adds; empty while its character is incomplete."""
        if id == self._text.eos and self._text.eos_is_newline:
            rest_of_line = self.end()
            self._before = []
            return rest_of_line + "\n"
        self._pending.append(id)
        text = self._new()
        if text.endswith(UNFINISHED):
            return ""
        # Only the last tokens affect the text of the next one; decoding all of them takes quadratic
        # time.
        self._before = self._pending
        self._pending = []
        return text

    def end(self) -> str:
        """Text withheld so far, as far as it can be decoded."""
        text = self._new() if self._pending else ""
        self._before = self._before + self._pending
        self._pending = []
        return text

    def _new(self) -> str:
        text = self._text.decoded(self._before)
        return self._text.decoded(self._before + self._pending)[len(text) :]


BLOCK = 1 << 16
"""Ids read at a time."""
BLOCKS_KEPT = 64
AROUND = {"char": 40, "byte": 40}
AROUND_OTHERS = 10
"""Tokens of a tokenizer that fill about half a line."""


@dataclass(frozen=True)
class Excerpt:
    """A token of a split, its place, and the text around it within its document.

    `row`: place in the split; `document`: number of its document there, `offset`: tokens from the
    document's start. `before`, `token` and `after` join to the text, unless the token is white
    space, which is spelled out.
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
        """Description of the token's place: `train, document 3 (a.txt), token 7`."""
        called = f" ({self.name})" if self.name else ""
        return f"{self.split}, document {self.document}{called}, token {self.offset}"


class _Span(NamedTuple):
    """Tokens [first, last) around `row`, all in one document, which begins at token `start`."""

    row: int
    document: int
    start: int
    first: int
    last: int


class SplitText:
    """The text of one split, read on demand."""

    def __init__(
        self,
        split: str,
        ids: Any,
        doc_offsets: Any,
        text: TokenText,
        names: DocumentNames | None = None,
    ) -> None:
        """Args:
        split: its name.
        ids: integers [T], a NumPy or Zarr array.
        doc_offsets: int64 [D + 1], start of each document, and the end.
        text: the tokenizer.
        names: names of the documents.
        """
        self.split = split
        self._text = text
        self._names = names or DocumentNames(())
        self._offsets = np.asarray(doc_offsets[:])

        @lru_cache(BLOCKS_KEPT)
        def block(number: int) -> np.ndarray:
            return np.asarray(ids[number * BLOCK : (number + 1) * BLOCK])

        self._block = block

    @classmethod
    def of(
        cls, group: Any, split: str, text: TokenText, names: DocumentNames | None = None
    ) -> "SplitText":
        """Text of a split of a group `tokens.zarr`, or of a passage."""
        return cls(split, group[f"{split}/ids"], group[f"{split}/doc_offsets"], text, names)

    def pieces(self, start: int, stop: int) -> list[str]:
        """The text of each token of [start, stop)."""
        return self._text.pieces(self._ids(start, stop))

    def at(self, row: int, before: int = 12, after: int = 4) -> Excerpt:
        """Token `row`, with up to `before` and `after` tokens of its document around it."""
        (excerpt,) = self.excerpts([row], before, after)
        return excerpt

    def excerpts(self, rows: Sequence[int] | np.ndarray, before: int, after: int) -> list[Excerpt]:
        """Excerpts at the given rows, in any order. Rows close together are decoded as one text."""
        spans = self._spans(np.asarray(rows, np.int64), before, after)
        if not spans:
            return []

        first = min(span.first for span in spans)
        last = max(span.last for span in spans)
        num_tokens = sum(span.last - span.first for span in spans)
        if len(spans) > 1 and last - first <= num_tokens:
            return self._excerpts_together(spans, first, last)

        excerpts = []
        for span in spans:
            ids = self._ids(span.first, span.last)
            excerpts.append(self._excerpt(span, ids, self._text.pieces(ids)))
        return excerpts

    def _excerpts_together(self, spans: Sequence[_Span], first: int, last: int) -> list[Excerpt]:
        """Excerpts of tokens [first, last), which are decoded once."""
        ids = self._ids(first, last)
        pieces = self._text.pieces(ids)
        excerpts = []
        for span in spans:
            part = slice(span.first - first, span.last - first)
            excerpts.append(self._excerpt(span, ids[part], pieces[part]))
        return excerpts

    def _spans(self, rows: np.ndarray, before: int, after: int) -> list[_Span]:
        documents = np.searchsorted(self._offsets, rows, side="right") - 1
        starts = self._offsets[documents]
        stops = self._offsets[documents + 1]
        columns = (
            rows,
            documents,
            starts,
            np.maximum(rows - before, starts),
            np.minimum(rows + 1 + after, stops),
        )
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
