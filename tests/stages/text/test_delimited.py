"""Rows of text in CSV and TSV files."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages.errors import DataError
from stages.text.records import Record, TextFile, records

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff"), max_size=20)


def read(path: Path, column: str = "text", **settings: object) -> list[Record]:
    """Records of a file, whose blocks are joined."""
    file = TextFile.of(str(path), column)
    return [
        record._replace(blocks="".join(record.blocks))
        for record in records(TextFile(**{**vars(file), **settings}))
    ]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_rows_are_those_that_were_written(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    """Separators, quotes and line breaks in a text come back as they were."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerows([("title", "text"), *rows])
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(written.getvalue().encode()))
    assert [record.blocks for record in read(path)] == [text for _, text in rows]


def test_a_row_has_its_title_or_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('title,text\nOne,a\n\n,"b, c"\n', "utf-8")
    assert [(record.name, record.blocks) for record in read(path)] == [
        ("One", "a"),
        ("a.csv:1", "b, c"),
    ]


def test_quotes_of_tsv_are_text(tmp_path: Path) -> None:
    """A text that begins with a quote joins no rows."""
    path = tmp_path / "a.TSV"
    path.write_text('text\tlabel\n"so he said\t1\nyes"\t0\n', "utf-8")
    assert [record.blocks for record in read(path)] == ['"so he said', 'yes"']


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("id,body\n1,yes\n", "no column 'text'; columns of its first line: id, body"),
        ("id;text\n1;yes\n", "another separator than that of .csv"),
        ("text,id\na\rb,1\n", "a carriage return outside quotes"),
        ("", "no column 'text'; columns of its first line: none"),
        ("text,text\na,b\n", "no column 'text'"),
        ('text,id\n"never closed,1\nb,2\n', "line 3: no CSV"),
        ('text,id\n"a" b,1\n', "line 2: no CSV"),
        ("text,id\na,1\nb, c,2\n", r"row 1 \(from 0\): 3 fields, where the header has 2"),
        ("text,id\n" + "a" * 99 + ",1\n", "--max-record-bytes"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(DataError, match=said):
        read(path, largest_record=50)
