"""Parquet and Arrow files: every text comes back, whatever its layout, and what is wrong is named."""

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from stages.errors import DataError
from stages.text.config import LARGEST_RECORD
from stages.text.files import file_digest, format_of
from stages.text.records import TextFile, records
from stages.text.tables import text_rows
from stages.tokenization.corpora import find_files

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
TEXTS = ["one\ntwo\n", "", "drei 🌍", "a\r\nb", "x" * 300_000]


def table(texts: Any = TEXTS, **columns: Any) -> Any:
    return pa.table({"text": texts, **columns})


def write(path: Path, content: Any, **options: Any) -> Path:
    """A table by its file's name: Parquet, Arrow's file format, or (`.stream.arrow`) its stream
    format.
    """
    if path.name.endswith(".parquet"):
        parquet.write_table(content, path, **options)
        return path
    opened = pa.ipc.new_stream if ".stream." in path.name else pa.ipc.new_file
    with opened(str(path), content.schema, **options) as writer:
        writer.write_table(content, max_chunksize=2)
    return path


def text_file(path: Path, **settings: Any) -> TextFile:
    return TextFile(str(path), format_of(str(path)), file_digest(str(path)), **settings)


def read(path: Path, **settings: Any) -> list[str]:
    return ["".join(record.blocks) for record in records(text_file(path, **settings))]


def as_read(texts: list[str]) -> list[str]:
    return [text.replace("\r\n", "\n") for text in texts]


def names(path: Path) -> list[str]:
    return [record.name for record in records(text_file(path))]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.stream.arrow"])
@pytest.mark.parametrize("type", ["string", "large_string", "string_view", "dictionary"])
def test_every_text_comes_back_a_row_a_record(name: str, type: str, tmp_path: Path) -> None:
    kinds = {
        "string": pa.string(),
        "large_string": pa.large_string(),
        "string_view": pa.string_view(),
    }
    kind = kinds.get(type) or pa.dictionary(pa.int32(), pa.string())
    path = write(tmp_path / name, table(pa.array(TEXTS).cast(kind)))
    assert read(path) == as_read(TEXTS)


@pytest.mark.parametrize(
    "options", [{"row_group_size": 1}, {"compression": "zstd"}, {"use_dictionary": False}, {}]
)
def test_the_layout_of_parquet_makes_no_difference(options: dict[str, Any], tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.parquet", table(), **options)) == as_read(TEXTS)


def test_rows_may_be_joined_each_from_a_new_line_on(tmp_path: Path) -> None:
    path = write(tmp_path / "wiki.parquet", table(["", " = Title = \n", "", "text \n", "more"]))
    (record,) = records(text_file(path, rows_joined=True))
    assert (record.name, "".join(record.blocks)) == (
        "wiki.parquet",
        "\n = Title = \n\ntext \nmore\n",
    )


def test_another_column_is_read_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table(["no"], body=["yes"]))
    assert read(path, column="body") == ["yes"]
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"body": "yes", "text": 7}\n')
    assert read(lines, column="body") == ["yes"]


def test_rows_are_called_by_their_title_name_or_id_else_by_their_number(tmp_path: Path) -> None:
    whole = table(
        ["a", "b", "c"], id=[1, 2, None], title=[" Emma ", None, ""], name=[[1], [2], [3]]
    )
    assert names(write(tmp_path / "a.parquet", whole)) == ["Emma", "2", "a.parquet:2"]
    assert names(write(tmp_path / "b.arrow", table(["x", "y"]))) == ["b.arrow:0", "b.arrow:1"]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"body": ["x"], "title": ["y"], "n": [1]},
            "has no column 'text'; columns of text there: body, title",
        ),
        ({"n": [1]}, "has no column 'text'; columns of text there: none"),
        ({"text": [7], "body": ["x"]}, "column 'text' holds int64; columns of text there: body"),
        ({"text": [["a", "b"]]}, "column 'text' holds list<"),
        ({"text": [b"a"]}, "column 'text' holds binary"),
        ({"text": ["a", None, "b"]}, "row 1 .from 0.: 'text' is null"),
    ],
)
def test_columns_that_are_no_text_are_named(
    columns: dict[str, Any], message: str, name: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"a\.(parquet|arrow).*{message}"):
        read(write(tmp_path / name, pa.table(columns)))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.stream.arrow"])
@pytest.mark.parametrize("cut", [0, 3, 200, -1, -300_000])
def test_a_file_cut_short_is_told_as_such(name: str, cut: int, tmp_path: Path) -> None:
    path = write(tmp_path / name, table())
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(
        DataError, match=r"a(\.stream)?\.\w+ is no intact (Parquet|Arrow) file, or is cut short"
    ):
        read(path)


def test_what_is_no_table_is_told_as_such(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_text("once upon a time there was a text file " * 9)
        with pytest.raises(DataError, match="is no intact"):
            read(tmp_path / name)


def test_text_that_is_no_utf8_is_bad_data(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    with pytest.raises(DataError, match=r"row 0 .* is not UTF-8"):
        read(write(tmp_path / "a.parquet", table(broken)))


@pytest.mark.parametrize("name", ["a.arrow", "a.stream.arrow"])
@pytest.mark.parametrize("offset", [2**30, -5, 9])
def test_a_wrong_offset_is_told_before_it_is_followed(
    name: str, offset: int, tmp_path: Path
) -> None:
    path = write(tmp_path / name, table(["one", "three"], title=["a", "b"]))
    whole, right = path.read_bytes(), struct.pack("<iii", 0, 3, 8)
    assert whole.count(right) == 1
    path.write_bytes(
        whole.replace(right, struct.pack("<iii", 0, offset, 8 if offset < 9 else offset))
    )
    with pytest.raises(DataError, match=r"is no intact Arrow file"):
        read(path)


def test_a_file_that_becomes_another_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table())
    found = text_rows(str(path), file_digest(str(path)), "text")
    next(found)
    path.write_bytes(path.read_bytes()[:-4] + b"PAR2")
    with pytest.raises(DataError, match="changed while it was being read"):
        list(found)


@pytest.mark.parametrize("joined", [False, True])
def test_a_row_larger_than_allowed_is_refused(joined: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table(["ü" * 10, "ü" * 11]))
    with pytest.raises(
        DataError, match=r"row 1: the record is larger than 20 .*--max-record-bytes"
    ):
        read(path, largest_record=20, rows_joined=joined)
    assert len(read(path, largest_record=22)) == 2


@pytest.mark.parametrize("name", ["a.parquet", "a.stream.arrow"])
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path) -> None:
    """64 MB of text in one row group, in pages of eight rows, or in batches of two."""
    pages = {"write_batch_size": 8} if name == "a.parquet" else {}
    path = write(tmp_path / name, table([f"{i}" * 2**15 for i in range(100, 800)]), **pages)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    most = 0
    for record in records(text_file(path, largest_record=LARGEST_RECORD)):
        assert "".join(record.blocks)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 20e6
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_folders_are_searched_for_tables_too(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.arrow"):
        write(tmp_path / name, table())
    for name in ("c.parquet.gz", "d.ods"):
        (tmp_path / name).write_bytes(b"x")
    assert [Path(path).name for path in find_files([str(tmp_path)])] == ["a.arrow", "b.parquet"]
