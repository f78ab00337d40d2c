"""Texts in a file: the whole file, one record per line, or one row of a table per text."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from stages.errors import DataError
from stages.numbers import size
from stages.text.config import LARGEST_RECORD, TEXT
from stages.text.delimited import SEPARATORS, delimited_rows
from stages.text.disguises import ARRAY, is_json_array, require_prose
from stages.text.documents import BOUNDARIES, MarkedPiece, mark
from stages.text.files import (
    PYDOCS,
    RAW_BLOCK,
    Format,
    file_digest,
    format_of,
    pieces,
    pydoc_topics,
    text_blocks,
    text_digest,
)
from stages.text.tables import TextRow, text_rows

NAMES = ("title", "name", "id")
"""Fields that may name a record; the first one present is used."""


@dataclass(frozen=True)
class TextFile:
    """A file to read, the expected digest of its bytes, and the longest record in bytes."""

    path: str
    format: Format
    digest: str
    largest_record: int = LARGEST_RECORD
    column: str = TEXT
    """Column of a table, or field of a record of `.jsonl`, that holds the text."""
    rows_joined: bool = False
    """Whether the rows of a table form one text, with one or more lines per row; else each row is a
    text.
    """
    fields: tuple[str, ...] = NAMES
    """Fields of a `.jsonl` record that are kept in addition to its text."""

    @classmethod
    def of(cls, path: str, column: str = TEXT) -> Self:
        """The file with its current digest, and the format by its name."""
        return cls(path, format_of(path), file_digest(path), column=column)


class Record(NamedTuple):
    """A text in blocks of bounded size, and its name."""

    name: str
    blocks: Iterator[str]
    fields: Mapping[str, Any] = MappingProxyType({})
    """Fields of the record that are kept."""


def records(file: TextFile) -> Iterator[Record]:
    """The texts in a file, with lines ended by "\\n". Consume a record before you ask for the next.

    Raises: DataError naming the file and the place of any fault.
    """
    for record in _records(file):
        yield record._replace(blocks=_with_line_feeds(record.blocks))


def _with_line_feeds(blocks: Iterator[str]) -> Iterator[str]:
    r"""The same text with "\n" for every "\r\n", even if a block ends between the two.

    >>> "".join(_with_line_feeds(iter(["a\r", "\nb\r\n", "c\r"])))
    'a\nb\nc\r'
    """
    carriage_return = ""
    for block in blocks:
        text = carriage_return + block
        carriage_return = "\r" if text.endswith("\r") else ""
        yield text[: len(text) - len(carriage_return)].replace("\r\n", "\n")
    if carriage_return:
        yield carriage_return


def _records(file: TextFile) -> Iterator[Record]:
    """The texts with their original line ends."""
    name = PurePath(file.path).name
    if file.format == "txt":
        yield Record(name, require_prose(file.path, text_blocks(file.path, file.digest)))
    elif file.format == "pydocs":
        topics = pydoc_topics()
        if text_digest(topics.values()) != file.digest:
            raise DataError(f"{PYDOCS} is not the text expected: another Python?")
        for topic, text in topics.items():
            yield Record(topic, iter([text]))
    elif file.format == "jsonl":
        yield from _json_records(file, name)
    elif file.rows_joined:
        yield Record(name, _lines_of_rows(file))
    else:
        for row in _rows(file):
            yield Record(_name(row.others) or f"{name}:{row.number}", _blocks(row.text), row.others)


def _lines_of_rows(file: TextFile) -> Iterator[str]:
    """The texts of all rows, each on a new line, in blocks."""
    for row in _rows(file):
        line_end = "" if row.text.endswith("\n") else "\n"
        yield from _blocks(row.text + line_end)


def _rows(file: TextFile) -> Iterator[TextRow]:
    """The rows of a table. Raises: DataError for one that is larger than the file's limit."""
    names = () if file.rows_joined else NAMES
    if file.format in SEPARATORS:
        rows = delimited_rows(
            file.path, file.format, file.digest, file.column, names, file.largest_record
        )
    else:
        rows = text_rows(file.path, file.digest, file.column, names)
    for row in rows:
        _require_size(file, f"row {row.number}", len(row.text.encode()))
        yield row


def _json_records(file: TextFile, file_name: str) -> Iterator[Record]:
    """The texts of a file with a JSON object on each line."""
    # Neither the line nor the record stays in memory while its text is used.
    for number, line in numbered_lines(text_blocks(file.path, file.digest), file):
        if number == 1:
            _require_no_array(file.path, line)
        if line and not line.isspace():
            record = _json_object(f"{file.path}, line {number}", line, file.column)
            del line
            text = record.pop(file.column)
            name = _name(record) or f"{file_name}:{number}"
            fields = {field: record[field] for field in file.fields if field in record}
            del record
            yield Record(name, _blocks(text), fields)
            del text


def _require_no_array(path: str, line: str) -> None:
    """Check the first line of a file. Raises: DataError if it begins an array of objects."""
    start = line.lstrip()
    # an array may have its first object on the next line
    if line.strip() == "[":
        start += "{"
    if is_json_array(start):
        raise DataError(f"{path} {ARRAY}.")


def numbered_lines(blocks: Iterable[str], file: TextFile) -> Iterator[tuple[int, str]]:
    """Line numbers from 1, and whole lines without their ends.

    Raises: DataError for a line larger than the file's limit for records, before all of it is read.
    """
    parts: list[str] = []
    num_bytes = 0
    number = 1
    for block in blocks:
        for place, part in enumerate(block.split("\n")):
            if place:
                yield number, _join_and_clear(parts)
                num_bytes = 0
                number = number + 1
            num_bytes += len(part) if part.isascii() else len(part.encode())
            _require_size(file, f"line {number}", num_bytes)
            parts.append(part)
    yield number, _join_and_clear(parts)


def _require_size(file: TextFile, place: str, num_bytes: int) -> None:
    """Check the size of a record.

    Raises: DataError if the `num_bytes` bytes of a record exceed the file's limit.
    """
    if num_bytes > file.largest_record:
        raise DataError(
            f"{file.path}, {place}: the record is larger than {size(file.largest_record)}; "
            "cut it into several, or allow larger ones with --max-record-bytes."
        )


def _join_and_clear(parts: list[str]) -> str:
    """Join parts into a text, and clear the list to free them."""
    text = "".join(parts)
    parts.clear()
    return text


def json_line(where: str, line: str, content: str) -> dict[str, Any]:
    """The JSON object of a line. Raises: DataError naming the `content` content if it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: no valid JSON ({error}).") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected a JSON object {content}.")
    return record


def _json_object(where: str, line: str, field: str) -> dict[str, Any]:
    """A JSON object with a text in `field`."""
    content = f'with a field "{field}" that is a string'
    record = json_line(where, line, content)
    text = record.get(field)
    if not isinstance(text, str):
        fields = [name for name, value in record.items() if isinstance(value, str)]
        cure = f"; fields of text there: {', '.join(fields[:8])} (--column NAME)" if fields else ""
        raise DataError(f"{where}: expected a JSON object {content}{cure}.")
    require_unicode(where, text)
    return record


def require_unicode(where: str, text: str) -> None:
    """Check that a text can be written in UTF-8.

    Raises: DataError for half of a surrogate pair, which JSON can contain but UTF-8 cannot.
    """
    done = 0
    for block in _blocks(text):
        try:
            block.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}: half of a surrogate pair at character {done + error.start}."
            ) from error
        done += len(block)


def _blocks(text: str) -> Iterator[str]:
    return (text[start : start + RAW_BLOCK] for start in range(0, len(text), RAW_BLOCK))


def _name(record: dict[str, Any]) -> str | None:
    """Name of a record, in one line of readable characters."""
    for field in NAMES:
        value = record.get(field)
        if isinstance(value, str | int):
            name = str(value).strip()
            if name:
                return name
    return None


def beginnings(
    files: Sequence[TextFile], documents: str, max_bytes: float
) -> Iterator[MarkedPiece]:
    """Read like `read_corpus`, but only the beginning of each file, about `max_bytes` bytes in total."""
    for file in files:
        read = 0
        for piece in read_corpus([file], documents):
            yield piece
            read += len(piece.text.encode())
            if read >= max_bytes / len(files):
                break


def read_corpus(files: Iterable[TextFile], documents: str) -> Iterator[MarkedPiece]:
    """Stream the text of files with documents and paragraphs marked. The first piece of a file or
    record has its name.

    Args:
        files: in order; each file, and each record of a `.jsonl` file, begins a document.
        documents: rule for further starts of documents, a key of `documents.BOUNDARIES`.
    Raises: DataError naming the first file that is empty or faulty.
    """
    for file in files:
        empty = True
        for record in records(file):
            name: str | None = record.name
            for piece in mark(pieces(record.blocks), BOUNDARIES[documents]):
                yield piece if name is None else piece._replace(name=name)
                empty = False
                name = None
        if empty:
            raise DataError(f"{file.path} is empty; expected text.")
