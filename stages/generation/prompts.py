"""Prompts of a file of JSON lines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stages.errors import DataError
from stages.generation.chat import Message, chat_ids
from stages.inspection.reading import MemoryReader


class PromptRecord(NamedTuple):
    """A line of the file: its fields, which the answer repeats, and the text or conversation."""

    fields: dict[str, Any]
    prompt: str | Sequence[Message]
    is_chat: bool

    def ids(self, reader: MemoryReader) -> list[int]:
        """Tokens to go on from."""
        if isinstance(self.prompt, str) and not self.is_chat:
            return reader.text.prompt_ids(self.prompt)
        if isinstance(self.prompt, str):
            return chat_ids(reader, [{"role": "user", "content": self.prompt}])
        return chat_ids(reader, self.prompt)


def read_prompts(path: Path, is_chat: bool) -> list[PromptRecord]:
    """Read a file with a string, or an object with `prompt` or `messages`, in every line.

    Raises: DataError, with the line, for anything else.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; expected a file with a prompt a line.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise DataError(f"{path} has no prompt: write one in each line, as JSON.")
    return [_record(path, number, line, is_chat) for number, line in numbered]


def _record(path: Path, number: int, line: str, is_chat: bool) -> PromptRecord:
    where = f"Line {number:,} of {path}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is no JSON: {error}") from error
    fields = {"prompt": record} if isinstance(record, str) else record
    if not isinstance(fields, dict):
        raise DataError(f'{where} is neither a string nor an object with "prompt".')
    if is_chat and _is_conversation(fields.get("messages")):
        return PromptRecord(fields, fields["messages"], is_chat)
    prompt = fields.get("prompt")
    if not isinstance(prompt, str):
        names = '"prompt" or "messages"' if is_chat else '"prompt"'
        raise DataError(f"{where} has no {names}, which is what to go on from.")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where} holds half of a character.") from None
    return PromptRecord(fields, prompt, is_chat)


def _is_conversation(messages: Any) -> bool:
    """Whether a value is a list of messages, each with a role and a content."""
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in messages
        )
    )
