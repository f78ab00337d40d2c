"""Between text and the ids of a tokenizer."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from stages.errors import content_of
from stages.text.tokenizer import UNK

UNFINISHED = "\ufffd"
"""Decoding of bytes that are no whole character yet."""


class TokenText:
    """A tokenizer, both ways."""

    def __init__(self, file: Path, metrics: Mapping[str, Any]) -> None:
        """Args:
        file: a `tokenizer.json`.
        metrics: what tokenize tells of it: `eos_id`, `eos_after`.
        """
        from stages.text.open_tokenizer import load_tokenizer

        self._file, self._tokenizer = file, load_tokenizer(file)
        self.vocabulary_size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self.eos: int = metrics["eos_id"]
        self.eos_is_newline = metrics["eos_after"] == "line"
        """Whether `<eos>` stands for the end of a line."""

    def ids(self, text: str) -> list[int]:
        """The tokens of a text; words that the vocabulary lacks are `<unk>`, and no `<eos>` is added."""
        with content_of(self._file, Exception):  # the library has no class of its own
            found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
            return found

    @cached_property
    def special(self) -> tuple[int, ...]:
        """Ids of tokens that stand for no text: `<eos>`, `<unk>`, padding, languages."""
        found = {id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        unknown = (getattr(self._tokenizer.model, "unk_token", None), UNK)
        ids = (None if name is None else self._tokenizer.token_to_id(name) for name in unknown)
        return tuple(sorted(found | {self.eos} | {id for id in ids if id is not None}))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Text that each of consecutive tokens adds; a character counts for the token that ends it."""
        stream = TextStream(self)
        brought = [stream.add(id) for id in ids]
        return [*brought[:-1], brought[-1] + stream.end()] if brought else []

    def label(self, id: int) -> str:
        r"""One token by itself: its text; a part of a character, as of Chinese in a small vocabulary, as `\xe5\x85`."""
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
    """Text of tokens that arrive one by one: what is given out is never taken back.

    How a token reads may depend on the one before it (spaces between words), and a character may lie in
    several tokens: each new token is decoded with the last ones, and withheld while a character is unfinished.
    """

    def __init__(self, text: TokenText) -> None:
        self._text = text
        self._before: list[int] = []
        self._pending: list[int] = []

    def add(self, id: int) -> str:
        """The text that a token brings; empty while its character is unfinished."""
        if id == self._text.eos and self._text.eos_is_newline:
            left, self._before = self.end(), []
            return left + "\n"
        self._pending.append(id)
        text = self._new()
        if text.endswith(UNFINISHED):
            return ""
        self._before, self._pending = self._pending, []
        return text

    def end(self) -> str:
        """Text that was withheld, as far as it can be read."""
        text = self._new() if self._pending else ""
        self._before, self._pending = self._before + self._pending, []
        return text

    def _new(self) -> str:
        known = self._text.decoded(self._before)
        return self._text.decoded(self._before + self._pending)[len(known) :]
