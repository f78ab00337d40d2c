"""What a file holds: one text, or a record a line."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from stages.errors import DataError
from stages.numbers import size
from stages.text.blocks import RAW_BLOCK, text_blocks
from stages.text.config import LARGEST_RECORD
from stages.text.files import PYDOCS, Format, pydoc_names, pydoc_topics, text_digest

NAMES = ("title", "name", "id")
"""Fields that tell what a record is, the first that it has."""


@dataclass(frozen=True)
class TextFile:
    """A file to be read, with the digest of the bytes that are expected in it, and the longest record in bytes."""

    path: str
    format: Format
    digest: str
    largest_record: int = LARGEST_RECORD


class Record(NamedTuple):
    """A text, in blocks of a bounded size, and what it is called."""

    name: str
    blocks: Iterator[str]


def records(file: TextFile) -> Iterator[Record]:
    """The texts in a file; a record must be used up before the next is asked for.

    Raises: DataError naming the file and the place in it for whatever is wrong with it.
    """
    name = PurePath(file.path).name
    if file.format == "txt":
        yield Record(name, text_blocks(file.path, file.digest))
    elif file.format == "pydocs":
        yield from _topics(file)
    else:
        yield from _json_records(file, name)


def _topics(file: TextFile) -> Iterator[Record]:
    if text_digest(pydoc_topics()) != file.digest:
        raise DataError(f"{PYDOCS} is not the text expected: another Python?")
    return (Record(name, iter([text])) for name, text in zip(pydoc_names(), pydoc_topics(), strict=True))


def _json_records(file: TextFile, file_name: str) -> Iterator[Record]:
    # While a text is used, neither its line nor its record is held.
    for number, line in _lines(text_blocks(file.path, file.digest), file):
        if line and not line.isspace():
            record = _json_object(f"{file.path}, line {number}", line)
            del line
            text, name = record.pop("text"), _name(record) or f"{file_name}:{number}"
            del record
            yield Record(name, _blocks(text))
            del text


def _lines(blocks: Iterable[str], file: TextFile) -> Iterator[tuple[int, str]]:
    """Numbers from 1, and whole lines without their ends.

    Raises: DataError for a line that is larger than the file's records may be, before all of it is read.
    """
    parts: list[str] = []
    held, number = 0, 1
    for block in blocks:
        for place, part in enumerate(block.split("\n")):
            if place:
                yield number, _taken(parts)
                held, number = 0, number + 1
            held += len(part) if part.isascii() else len(part.encode())
            if held > file.largest_record:
                raise DataError(
                    f"{file.path}, line {number}: the record is larger than {size(file.largest_record)}; "
                    "cut it into several, or allow larger ones with --max-record-bytes."
                )
            parts.append(part)
    yield number, _taken(parts)


def _taken(parts: list[str]) -> str:
    """The text of some parts, which are then held no longer."""
    text = "".join(parts)
    parts.clear()
    return text


def _json_object(where: str, line: str) -> dict[str, Any]:
    """A JSON object that has a text."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: no valid JSON ({error}).") from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataError(f'{where}: expected a JSON object with a field "text" that is a string.')
    done = 0
    for block in _blocks(record["text"]):
        try:
            block.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: half of a surrogate pair at character {done + error.start}.") from error
        done += len(block)
    return record


def _blocks(text: str) -> Iterator[str]:
    return (text[start : start + RAW_BLOCK] for start in range(0, len(text), RAW_BLOCK))


def _name(record: dict[str, Any]) -> str | None:
    """What a record says that it is called, in one line of readable characters."""
    found = (record[field] for field in NAMES if isinstance(record.get(field), str | int))
    return next((name for value in found if (name := str(value).strip())), None)
