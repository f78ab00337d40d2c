"""What a file holds: one text, or a record a line."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stages.errors import DataError
from stages.text.blocks import text_blocks
from stages.text.files import PYDOCS, Format, pydoc_topics, text_digest
from stages.text.pieces import Piece, pieces


@dataclass(frozen=True)
class TextFile:
    """A file to be read, with the digest of the bytes that are expected in it."""

    path: str
    format: Format
    digest: str


def records(file: TextFile) -> Iterator[Iterator[Piece]]:
    """The pieces of each text in a file; a record must be used up before the next is asked for.

    Raises: DataError naming the file and the place in it for whatever is wrong with it.
    """
    if file.format == "txt":
        yield pieces(text_blocks(file.path, file.digest))
        return
    texts = _topics(file) if file.format == "pydocs" else _json_texts(file)
    for text in texts:
        yield pieces([text])


def _topics(file: TextFile) -> Iterator[str]:
    if text_digest(pydoc_topics()) != file.digest:
        raise DataError(f"{PYDOCS} is not the text expected: another Python?")
    return pydoc_topics()


def _json_texts(file: TextFile) -> Iterator[str]:
    for number, line in enumerate(_lines(text_blocks(file.path, file.digest)), start=1):
        if not line.isspace():
            yield _text_field(file.path, number, line)


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    """Whole lines, however long."""
    parts: list[str] = []
    for block in blocks:
        first, *others = block.split("\n")
        parts.append(first)
        for line in others:
            yield "".join(parts) + "\n"
            parts = [line]
    if any(parts):
        yield "".join(parts)


def _text_field(path: str, number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: no valid JSON ({error}).") from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataError(f'{path}, line {number}: expected a JSON object with a field "text" that is a string.')
    text: str = record["text"]
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{path}, line {number}: half of a surrogate pair at character {error.start}.") from error
    return text
