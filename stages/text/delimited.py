"""Rows of text in CSV and TSV files, read in bounded memory."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stages.errors import DataError, shortened
from stages.text.files import text_blocks
from stages.text.tables import TextRow

SEPARATORS = {"csv": ",", "tsv": "\t"}
"""Separators of the formats."""
NAMED_COLUMNS = 8
"""Most columns that a message names."""


def delimited_rows(
    path: str, format: str, digest: str, column: str, others: Sequence[str], largest: int
) -> Iterator[TextRow]:
    """The rows of a file behind its header, in order; blank lines are none.

    Quotes have their meaning in CSV alone, as the two formats say (RFC 4180; IANA's
    tab-separated-values). A quote that is out of place is an error: otherwise one in a text would
    join many rows.

    Args:
        path: the file, which may be compressed.
        format: a key of `SEPARATORS`.
        digest: BLAKE2b that its bytes must have, see `files.file_digest`.
        column: the column that holds the text.
        others: further columns to read; left out where the header lacks them, or names them twice.
        largest: characters of the longest field.
    Raises: DataError naming file and row for quotes out of place, rows of another width than the
        header, and a header that lacks the column.
    """
    table = _table(path, format, digest, largest)
    header = next(table, [])
    place = _column_place(path, format, header, column)
    places = {
        name: header.index(name) for name in others if name != column and header.count(name) == 1
    }
    # A blank line has no fields.
    for number, fields in enumerate(filter(None, table)):
        if len(fields) != len(header):
            raise DataError(
                f"{path}, row {number} (from 0): {len(fields)} fields, where the header has "
                f"{len(header)}; a text that holds the separator stands in quotes."
            )
        other_fields = {name: fields[index] for name, index in places.items()}
        yield TextRow(number, fields[place], other_fields)


def require_named_column(path: str, format: str, digest: str, column: str, largest: int) -> None:
    """Check that a table has a column; no row is read.

    Raises: DataError if the header of a file lacks a column; no row is read.
    """
    header = next(_table(path, format, digest, largest), [])
    _column_place(path, format, header, column)


def _table(path: str, format: str, digest: str, largest: int) -> Iterator[list[str]]:
    """The fields of each row. Raises: DataError for quotes out of place, and fields too long."""
    # The limit is that of all readers of the process, so it is raised alone.
    csv.field_size_limit(max(largest, csv.field_size_limit()))
    lines = _lines(text_blocks(path, digest))
    dialect = {"delimiter": SEPARATORS[format], "strict": True}
    dialect["quoting"] = csv.QUOTE_MINIMAL if format == "csv" else csv.QUOTE_NONE
    rows: Any = csv.reader(lines, **dialect)  # type: ignore[arg-type]
    try:
        for fields in rows:
            if max(map(len, fields), default=0) > largest:
                raise csv.Error(f"field larger than {largest:,} characters")
            yield fields
    except csv.Error as error:
        raise DataError(
            f"{path}, line {rows.line_num}: no {format.upper()} ({error}); is a quote within a text "
            'not doubled (""), a carriage return outside quotes, or a text longer than '
            "--max-record-bytes?"
        ) from None


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    r"""Lines with their ends.

    >>> list(_lines(["a\nb", "c\n\n", "d"]))
    ['a\n', 'bc\n', '\n', 'd']
    """
    rest = ""
    for block in blocks:
        *whole, rest = (rest + block).split("\n")
        yield from (line + "\n" for line in whole)
    if rest:
        yield rest


def _column_place(path: str, format: str, header: Sequence[str], column: str) -> int:
    """The place of a column. Raises: DataError unless the header names it once."""
    if header.count(column) == 1:
        return header.index(column)

    is_single = len(header) == 1
    if is_single and any(separator in header[0] for separator in ";\t|"):
        raise DataError(
            f"{path}: its first line, {shortened(header[0], 80)!r}, has another separator than that of "
            f".{format}; write it with that."
        )

    names = ", ".join(shortened(name, 40) for name in header[:NAMED_COLUMNS])
    if len(header) > NAMED_COLUMNS:
        names += ", …"
    raise DataError(
        f"{path} has no column {column!r}; columns of its first line: {names or 'none'} (--column NAME)."
    )
