"""Answers in the form that clients expect, of completions and of chats; whole, or event by event."""

import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stages.serving.attribution import attributed_tokens
from stages.serving.completing import Piece, TextToken


@dataclass
class Usage:
    """Tokens of a request."""

    prompt_tokens: int = 0
    new_tokens: int = 0

    def count(self, piece: Piece) -> None:
        """Add the tokens of a piece."""
        self.prompt_tokens += piece.prompt_tokens
        self.new_tokens += piece.new_tokens

    def to_json(self) -> dict[str, int]:
        """Token counts as clients read them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.new_tokens,
            "total_tokens": self.prompt_tokens + self.new_tokens,
        }


@dataclass(frozen=True)
class Answer(ABC):
    """The frame of an answer to one request."""

    model: str
    read: Mapping[str, Any]
    """The memory that is read, and the artifacts."""
    listed: bool
    """Whether tokens are listed with their log-probabilities."""
    key: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    prefix: ClassVar[str]
    """Begins the id of an answer."""
    whole_object: ClassVar[str]
    event_object: ClassVar[str]

    def whole(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        """The answer with all choices."""
        usage = Usage()
        choices = dict[int, list[Piece]]()
        for piece in pieces:
            usage.count(piece)
            choices.setdefault(piece.choice, []).append(piece)
        joined = [_joined(parts) for _, parts in sorted(choices.items())]
        return {
            **self._frame(self.whole_object, [self._choice(piece) for piece in joined]),
            "usage": usage.to_json(),
            "memlm": self.read,
        }

    def events(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The events of a stream that bring a piece; none for one that brings nothing."""
        if piece.text or piece.tokens or piece.finish:
            yield self._frame(self.event_object, [self._part(piece)])

    def last_event(self, usage: Usage) -> dict[str, Any]:
        """The event that brings the usage."""
        frame = self._frame(self.event_object, [])
        return {**frame, "usage": usage.to_json(), "memlm": self.read}

    def _frame(self, kind: str, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{self.prefix}-{self.key}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        """A choice, or a part of it, without its text."""
        choice: dict[str, Any] = {
            "index": piece.choice,
            "logprobs": self._logprobs(piece.tokens) if self.listed else None,
            "finish_reason": piece.finish,
        }
        if piece.inspected is not None:
            tokens = attributed_tokens(piece.inspected, piece.inspected_tokens)
            choice["memlm"] = {"tokens": tokens}
        return self._with_text(choice, piece)

    def _part(self, piece: Piece) -> dict[str, Any]:
        """The choice of an event."""
        return self._choice(piece)

    @abstractmethod
    def _with_text(self, choice: dict[str, Any], piece: Piece) -> dict[str, Any]:
        """A choice with the text of a piece."""

    @abstractmethod
    def _logprobs(self, tokens: Sequence[TextToken]) -> dict[str, Any]:
        """Log-probabilities of tokens."""


class CompletionAnswer(Answer):
    """Completions of prompts."""

    prefix = "cmpl"
    whole_object = event_object = "text_completion"

    def _with_text(self, choice: dict[str, Any], piece: Piece) -> dict[str, Any]:
        return {**choice, "text": piece.text}

    def _logprobs(self, tokens: Sequence[TextToken]) -> dict[str, Any]:
        """Four lists, in nats; null for the first token of a prompt."""
        return {
            "tokens": [token.label for token in tokens],
            "token_logprobs": [token.log_p for token in tokens],
            "top_logprobs": [token.top for token in tokens],
            "text_offset": [token.offset for token in tokens],
        }


@dataclass(frozen=True)
class ChatAnswer(Answer):
    """A turn of a conversation."""

    top: int = 0
    """Likeliest tokens listed for each token."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    event_object = "chat.completion.chunk"

    def events(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The first event, before any text, names the role."""
        if piece.prompt_tokens:
            first = {"index": piece.choice, "delta": {"role": "assistant", "content": ""}}
            yield self._frame(self.event_object, [{**first, "finish_reason": None}])
        yield from super().events(piece)

    def _with_text(self, choice: dict[str, Any], piece: Piece) -> dict[str, Any]:
        return {**choice, "message": {"role": "assistant", "content": piece.text}}

    def _part(self, piece: Piece) -> dict[str, Any]:
        choice = self._choice(piece)
        del choice["message"]
        return {**choice, "delta": {"content": piece.text} if piece.text else {}}

    def _logprobs(self, tokens: Sequence[TextToken]) -> dict[str, Any]:
        """One item for each token, in nats."""
        return {"content": [self._token(token) for token in tokens], "refusal": None}

    def _token(self, token: TextToken) -> dict[str, Any]:
        top = list((token.top or {}).items())[: self.top]
        listed = [_entry(label, log_p) for label, log_p in top]
        return {**_entry(token.label, token.log_p), "top_logprobs": listed}


def _entry(label: str, log_p: float | None) -> dict[str, Any]:
    return {"token": label, "logprob": log_p, "bytes": list(label.encode())}


def _joined(pieces: Sequence[Piece]) -> Piece:
    """A choice in one piece."""
    last = pieces[-1]
    return last._replace(
        text="".join(piece.text for piece in pieces),
        tokens=[token for piece in pieces for token in piece.tokens],
    )


def event(content: Mapping[str, Any] | str) -> bytes:
    """A line of a stream of server-sent events."""
    text = content if isinstance(content, str) else to_json(content)
    return f"data: {text}\n\n".encode()


def to_json(content: Mapping[str, Any]) -> str:
    """JSON in one line. Raises: ValueError for numbers that JSON lacks."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
