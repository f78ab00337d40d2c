"""Answers in the form that clients of completions expect: whole, or as a stream of events."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
class CompletionAnswer:
    """The frame of an answer to one request."""

    id: str
    model: str
    read: Mapping[str, Any]
    """The memory that is read, and the artifacts."""
    listed: bool
    """Whether tokens are listed with their log-probabilities."""
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        """The answer with all choices."""
        usage, choices = Usage(), dict[int, list[Piece]]()
        for piece in pieces:
            usage.count(piece)
            choices.setdefault(piece.choice, []).append(piece)
        return {
            **self._frame([_joined(some) for _, some in sorted(choices.items())]),
            "usage": usage.to_json(),
            "memlm": self.read,
        }

    def event(self, piece: Piece) -> dict[str, Any]:
        """The event of a stream that brings a piece."""
        return self._frame([piece])

    def last_event(self, usage: Usage) -> dict[str, Any]:
        """The event that brings the usage."""
        return {**self._frame([]), "usage": usage.to_json(), "memlm": self.read}

    def _frame(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(piece) for piece in pieces],
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        choice = {
            "index": piece.choice,
            "text": piece.text,
            "logprobs": legacy_logprobs(piece.tokens) if self.listed else None,
            "finish_reason": piece.finish,
        }
        if piece.inspected is not None:
            tokens = attributed_tokens(piece.inspected, piece.inspected_from)
            choice["memlm"] = {"tokens": tokens}
        return choice


def _joined(pieces: Sequence[Piece]) -> Piece:
    """A choice in one piece."""
    last = pieces[-1]
    return last._replace(
        text="".join(piece.text for piece in pieces),
        tokens=[token for piece in pieces for token in piece.tokens],
    )


def legacy_logprobs(tokens: Sequence[TextToken]) -> dict[str, list[Any]]:
    """Log-probabilities in the form of completions, in nats; null for the first of a prompt."""
    return {
        "tokens": [token.label for token in tokens],
        "token_logprobs": [token.log_p for token in tokens],
        "top_logprobs": [token.top for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def event(content: Mapping[str, Any] | str) -> bytes:
    """A line of a stream of server-sent events."""
    text = content if isinstance(content, str) else to_json(content)
    return f"data: {text}\n\n".encode()


def to_json(content: Mapping[str, Any]) -> str:
    """JSON in one line. Raises: ValueError for numbers that JSON lacks."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
