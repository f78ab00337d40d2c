"""A survey finds how much text there is, and how finely it must be cut."""

import json
import textwrap
from pathlib import Path

import pytest

from stages.text.files import file_digest, format_of
from stages.text.records import TextFile
from stages.text.survey import first_bytes, survey, within


def text_file(folder: Path, name: str, text: str) -> TextFile:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return TextFile(str(path), format_of(str(path)), file_digest(str(path)))


TEXT = "one\ntwo\n\nthree\n\n\nfour é\n"


def test_files_paragraphs_and_lines_are_counted_and_measured(tmp_path: Path) -> None:
    found = survey([text_file(tmp_path, "a.txt", TEXT), text_file(tmp_path, "b.txt", "five\n")])
    assert (found.characters, found.bytes) == (len(TEXT) + 5, len(TEXT.encode()) + 5)
    assert [(cut.setting, cut.count, cut.largest) for cut in found.cuts] == [
        (None, 2, len(TEXT)),
        ("blank-line", 4, len("one\ntwo\n\n")),
        ("line", 5, len("three\n\n\n")),
    ]


@pytest.mark.parametrize(
    ("longest", "fewest", "setting"),
    [
        (30, 1, None),
        (9, 1, "blank-line"),
        (8, 1, "line"),
        (7, 1, "none"),
        (30, 2, "blank-line"),
        (30, 4, "line"),
        (30, 5, "none"),
    ],
)
def test_the_coarsest_cut_of_enough_documents_none_too_long_is_taken(
    tmp_path: Path, longest: int, fewest: int, setting: str | None
) -> None:
    cut = survey([text_file(tmp_path, "a.txt", TEXT)]).cut_below(longest, fewest)
    assert ("none" if cut is None else cut.setting) == setting


def test_records_are_documents(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in ["a b\n\nc", "d"])
    found = survey([text_file(tmp_path, "a.jsonl", lines)])
    assert [(cut.count, cut.largest) for cut in found.cuts] == [(2, 6), (3, 5), (3, 5)]


def test_lines_that_fill_a_column_look_wrapped(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(2000))
    wrapped = "\n".join(textwrap.wrap(words, 70))
    sentences = "".join("word " * (1 + 7 * number % 20) + "\n" for number in range(300))
    found = [survey([text_file(tmp_path, "a.txt", text)]).cuts for text in (wrapped, sentences, words, "")]
    assert [[cut.wrapped for cut in cuts] for cuts in found] == [[False, False, True], *[[False] * 3] * 3]


def test_files_that_the_first_bytes_are_of(tmp_path: Path) -> None:
    files = [text_file(tmp_path, name, TEXT) for name in ("a.txt", "b.txt", "c.txt")]
    size = len(TEXT.encode())
    assert [len(list(within(files, most))) for most in (1, size, size + 1, 10 * size)] == [1, 1, 2, 3]


@pytest.mark.parametrize(("most", "text"), [(3, ""), (4, "one\n"), (11, "one\ntwo\n\n"), (1000, TEXT)])
def test_the_first_bytes_end_with_a_line(tmp_path: Path, most: int, text: str) -> None:
    assert "".join(first_bytes([text_file(tmp_path, "a.txt", TEXT)], most)) == text


def test_between_records_a_line_is_blank(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in ["a", "b"])
    assert "".join(first_bytes([text_file(tmp_path, "a.jsonl", lines)], 100)) == "a\n\nb"
