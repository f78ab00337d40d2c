"""Files that are named as text and are something else: refused, with a way to what is in them."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from stages.errors import DataError
from stages.text.records import TextFile, records

TWO = b'{"body": "hi", "id": 3}\n{"body": "yo", "id": 4}\n'


def read(folder: Path, name: str, content: bytes) -> list[str]:
    path = folder / name
    path.write_bytes(content)
    return ["".join(record.blocks) for record in records(TextFile.of(str(path)))]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            TWO,
            r"is JSON lines, not text; call the file .jsonl, .* --documents jsonl \(and --column NAME, of body",
        ),
        ("a.txt", b"\n" + TWO, "is JSON lines, not text"),
        ("a.json.gz", gzip.compress(TWO, mtime=0), "is JSON lines, not text"),
        ("a.json", b'[\n {"body": "hi"}]', "is one JSON array, not a record a line; .* jq -c"),
        ("a.jsonl", b'[{"body": "hi"}]', "is one JSON array, not a record a line; .* jq -c"),
        ("a.jsonl", b'[\n{"body": "hi"}]', "is one JSON array"),
        ("a.jsonl", TWO, r"line 1: .*; fields of text there: body \(--column NAME\)"),
        ("a.ipynb", b'{"cells": []}', "is a notebook, not text; .* jupyter nbconvert"),
        ("a.html", b"<p>yes", "is a web page, not text; .* pandoc -t plain"),
        ("a.txt", b"\n<!DOCTYPE html><p>yes", "is a web page, not text"),
        ("a.warc", b"WARC/1.0\r\nWARC-Type: warcinfo\r\n", "is a web archive, not text"),
        ("a.txt", "hi".encode("utf-32"), "is UTF-32: .* iconv -f UTF-32"),
        ("a.txt", "hi".encode("utf-16"), "is UTF-16: .* iconv -f UTF-16"),
        ("a.tgz", gzip.compress(b"x" * 600, mtime=0), r"is a tar archive, .* \(tar xf\)"),
        ("a.tar", b"x" * 257 + b"ustar\0" + b"x" * 99, "is a tar archive"),
        ("a.bz2", bz2.compress(b"hi"), "is a bzip2 file"),
        ("a.lzma", lzma.compress(b"hi", lzma.FORMAT_ALONE), "is an lzma file"),
        ("a.feather", b"ARROW1\0\0", r"is an Arrow or Feather file \(call it \.arrow\)"),
        ("a.txt", b"a\xed\xa0\xbd\xed\xb8\x80", "looks like CESU-8.*surrogatepass"),
        ("a.txt", b"\xe9t\xe9", "iconv -f LATIN1"),
    ],
)
def test_a_disguise_is_named_with_its_cure(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("set.txt", "{ a set }\n{ b }\n"),
        ("object.json", '{\n "body": "hi"\n}\n'),
        ("list.txt", "[1]\n[2]\n"),
        ("page.md", "The tag <html> begins a page.\n"),
        ("mail.txt", 'As it said: {"body": 1}\n{"body": 2}\n'),
    ],
)
def test_text_that_looks_a_little_like_it_is_read(name: str, text: str, tmp_path: Path) -> None:
    assert read(tmp_path, name, text.encode()) == [text]


def test_text_longer_than_what_is_looked_at_is_read_whole(tmp_path: Path) -> None:
    text = "a line of text\n" * 40_000
    assert read(tmp_path, "long.txt", text.encode()) == [text]


def test_the_largest_window_of_zstd_is_read(tmp_path: Path) -> None:
    """`zstd --long=31` writes such frames; a raw block of 6 bytes in a window of 2 GB."""
    data = b"hello\n"
    frame = b"\x28\xb5\x2f\xfd" + bytes([0, (31 - 10) << 3])
    block = (len(data) << 3 | 1).to_bytes(3, "little") + data
    assert read(tmp_path, "long.txt.zst", frame + block) == ["hello\n"]
