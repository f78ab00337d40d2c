"""Rows of text in Parquet and Arrow files, read in bounded memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stages.errors import DataError, first_line
from stages.text.files import PARQUET, file_digest

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

READ_BYTES = 2**20
"""Bytes of a Parquet column that are read from disk at a time."""
BATCH_BYTES = 2**22
"""Bytes of rows decoded together, by the mean row size that the file states."""
MOST_ROWS = 64
"""Maximum number of rows decoded together. Few, because a file may store one large text for many
rows.
"""
_ARROW_FILE = b"ARROW1"
"""First bytes of Arrow's file format; its stream format, which `datasets` writes, begins
differently.
"""


class TextRow(NamedTuple):
    """A row: its number, from 0, its text, and its values in some other columns."""

    number: int
    text: str
    others: dict[str, Any]


def text_rows(path: str, digest: str, column: str, others: Sequence[str] = ()) -> Iterator[TextRow]:
    """The rows of a file, in order.

    Args:
        path: a `.parquet` or `.arrow` file.
        digest: BLAKE2b that its bytes must have, see `files.file_digest`.
        column: the column that holds the text.
        others: further columns of text or integers to read, if present.
    Raises: DataError naming file and row if it is truncated, corrupt or changed (`digest`), or
        lacks the column or text in it.
    """
    with _arrow_errors(path, digest), ExitStack() as opened:
        schema, batches = _open(path, column, others, opened)
        _require_text(path, schema, column)
        rows = (
            (batch.schema.names, values)
            for batch in batches
            for values in zip(*batch.columns, strict=True)
        )
        for number, (names, values) in enumerate(rows):
            row = dict(zip(names, values, strict=True))
            try:
                text = row.pop(column).as_py()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, row {number} (from 0): what {column!r} holds is not UTF-8 ({error.reason})."
                ) from None
            if text is None:
                raise DataError(
                    f"{path}, row {number} (from 0): {column!r} is null, where a text is expected; drop such rows "
                    "first."
                )
            yield TextRow(number, str(text), {name: value.as_py() for name, value in row.items()})
    # Arrow does not read a file in order, so its bytes cannot be hashed while they are read.
    if file_digest(path) != digest:
        raise DataError(f"{path} changed while it was being read; run the same command again.")


def require_column(path: str, column: str) -> None:
    """Check that a table has a column of text; no row is read.

    Raises: DataError if a file is not Parquet or Arrow, or lacks this column of text; no row is
    read.
    """
    with _arrow_errors(path, None), ExitStack() as opened:
        _require_text(path, _open(path, column, (), opened)[0], column)


def _open(
    path: str, column: str, others: Sequence[str], opened: ExitStack
) -> tuple["Schema", Iterator["RecordBatch"]]:
    """All columns of a file, and batches of rows with some of them."""
    if path.endswith(PARQUET):
        from pyarrow.parquet import ParquetFile

        file = opened.enter_context(
            ParquetFile(path, buffer_size=READ_BYTES, page_checksum_verification=True)
        )
        columns = _columns_to_read(file.schema_arrow, column, others)
        size = _batch_rows(file.metadata, columns)
        return file.schema_arrow, file.iter_batches(size, columns=columns, use_threads=False)
    import pyarrow

    source = opened.enter_context(pyarrow.memory_map(path))
    if source.read(len(_ARROW_FILE)) == _ARROW_FILE:
        whole = pyarrow.ipc.open_file(source)
        schema = whole.schema
        batches = (whole.get_batch(i) for i in range(whole.num_record_batches))
    else:
        source.seek(0)
        stream = pyarrow.ipc.open_stream(source)
        schema = stream.schema
        batches = iter(stream)
    columns = _columns_to_read(schema, column, others)
    return schema, (_validated(batch.select(columns)) for batch in batches)


def _validated(batch: "RecordBatch") -> "RecordBatch":
    """The batch, checked: it is mapped from the file, and a wrong offset would read other memory."""
    batch.validate(full=True)
    return batch


def _batch_rows(metadata: Any, columns: Sequence[str]) -> int:
    """Number of Parquet rows to decode together."""
    total_bytes = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in range(group.num_columns):
            chunk = group.column(column)
            if chunk.path_in_schema in columns:
                total_bytes += chunk.total_uncompressed_size

    # rows / total bytes are the rows of a byte
    num_rows = BATCH_BYTES * metadata.num_rows // max(1, total_bytes)
    return max(1, min(MOST_ROWS, num_rows))


def _columns_to_read(schema: "Schema", column: str, others: Sequence[str]) -> list[str]:
    """The columns to read: that of the text, and the others that hold texts or integers."""
    import pyarrow

    names = [column] if column in schema.names else []
    for name in others:
        if name == column or schema.names.count(name) != 1:
            continue
        field_type = schema.field(name).type
        if _is_text(field_type) or pyarrow.types.is_integer(field_type):
            names.append(name)
    return names


def _require_text(path: str, schema: "Schema", column: str) -> None:
    """Check that a column holds text.

    Raises: DataError unless exactly one column has this name, and it holds text.
    """
    texts = ", ".join(field.name for field in schema if _is_text(field.type)) or "none"
    if schema.names.count(column) != 1:
        raise DataError(
            f"{path} has no column {column!r}; columns of text there: {texts} (--column NAME)."
        )
    field_type = schema.field(column).type
    if not _is_text(field_type):
        raise DataError(
            f"{path}: column {column!r} holds {field_type}; columns of text there: {texts} (--column NAME)."
        )


def _is_text(type: Any) -> bool:
    from pyarrow import types

    value_type = type.value_type if types.is_dictionary(type) else type
    return bool(
        types.is_string(value_type)
        or types.is_large_string(value_type)
        or types.is_string_view(value_type)
    )


@contextmanager
def _arrow_errors(path: str, digest: str | None) -> Iterator[None]:
    """Turn errors of Arrow into errors of the data.

    Raises: DataError for a file that Arrow cannot read; the message says if the file has
    changed.
    """
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError) as error:
        if digest is not None and Path(path).is_file() and file_digest(path) != digest:
            raise DataError(
                f"{path} changed while it was being read; run the same command again."
            ) from error
        kind = "Parquet" if path.endswith(PARQUET) else "Arrow"
        reason = first_line(error).rstrip(".")[:200]
        failed = (
            getattr(error, "errno", None) is not None
        )  # Arrow's own errors are often OSErrors, too
        raise DataError(f"{path} is no intact {kind} file, or is cut short: {reason}.") from (
            error if failed else None
        )
