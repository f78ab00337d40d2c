"""Documents and paragraphs as text streams by, and their names."""

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.errors import ArtifactError
from stages.text import documents as module
from stages.text.documents import (
    BOUNDARIES,
    ENDS_LINE,
    OPENS_DOCUMENT,
    DocumentNames,
    MarkedPiece,
    NamedRun,
    NameRuns,
    ParagraphHashes,
    is_title,
    mark,
    names_file,
    read_runs,
    runs_between,
)
from stages.text.files import pieces
from tests.builders.limits import limit
from tests.oracles import text as oracle
from tests.stages.text.helpers import examples

lines = st.sampled_from(
    ["\n", " \n", "word\n", "two words \n", " = Title = \n", " = = Part = = \n", " = a = b = \n"]
)
texts = st.builds(
    lambda ls, end: "".join(ls) + end,
    st.lists(lines, max_size=12),
    st.sampled_from(["", " ", "end"]),
)


def marked_groups(text: str, rule: str, opens: int) -> list[str]:
    found: list[str] = []
    for piece in mark(pieces([text]), BOUNDARIES[rule]):
        if piece.marks & opens:
            found.append("")
        found[-1] += piece.text
    return found


@pytest.mark.parametrize("rule", ["file", "line", "blank-line", "wikitext"])
@examples
@given(texts)
@example(" \n = A = \n \n text \n \n = = B = = \n \n more \n \n = C = \n \n end \n")
def test_documents_begin_where_the_oracle_says(rule: str, text: str) -> None:
    assert marked_groups(text, rule, module.OPENS_DOCUMENT) == oracle.documents(text, rule)


@pytest.mark.parametrize("rule", ["file", "line", "wikitext"])
@examples
@given(texts)
def test_paragraphs_and_their_hashes(rule: str, text: str) -> None:
    expected = [p for document in oracle.documents(text, rule) for p in oracle.paragraphs(document)]
    assert marked_groups(text, rule, module.OPENS_PARAGRAPH) == expected
    for at_once in (1, 3, 1000):
        hashes, marked = ParagraphHashes(), list(mark(pieces([text]), BOUNDARIES[rule]))
        parts = [marked[first : first + at_once] for first in range(0, len(marked), at_once)]
        found = [*chain.from_iterable(map(hashes.ended, parts)), hashes.finish()]
        assert [value for value in found if value is not None] == list(
            map(oracle.paragraph_hash, expected)
        )


@examples
@given(texts)
def test_each_document_ends_once_before_the_next(text: str) -> None:
    marks = [piece.marks for piece in mark(pieces([text]), BOUNDARIES["line"])]
    opens = [bool(m & module.OPENS_DOCUMENT) for m in marks]
    ends = [bool(m & module.ENDS_DOCUMENT) for m in marks]
    assert ends == [*opens[1:], True][: len(marks)]


def test_a_paragraph_of_pieces_has_the_hash_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, longest_piece=5)
    text = "  one  two   three\n   \n\n"
    hashes, marked = ParagraphHashes(), list(mark(pieces([text]), BOUNDARIES["file"]))
    assert len(marked) > 3 and not [*hashes.ended(marked[:2]), *hashes.ended(marked[2:])]
    assert hashes.finish() == oracle.paragraph_hash(text)
    assert hashes.finish() is None


@pytest.mark.parametrize("space", [" ", "\t \r", "\u3000"])
def test_long_white_space_counts_only_between_words(
    space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, longest_piece=5)
    monkeypatch.setattr(module, "LONGEST_SPACE", 7)
    for text in (
        f"a{space * 40}b",
        f"a{space * 40}",
        f"{space * 40}a{space * 3}b{space * 40}c{space * 40}\n",
    ):
        hashes = ParagraphHashes()
        assert not any(
            list(hashes.ended([piece])) for piece in mark(pieces([text]), BOUNDARIES["file"])
        )
        assert hashes.finish() == oracle.paragraph_hash(text)


@pytest.mark.parametrize("blank", ["\n", " \n", "\t\n"])
def test_a_run_of_blank_lines_is_held_within_bounds(blank: str) -> None:
    hashes, found = ParagraphHashes(), list[int]()
    longest = 0
    for piece in mark(pieces(["a\n", *[blank] * 5000, "b\n"]), BOUNDARIES["file"]):
        found += hashes.ended([piece])
        longest = max(longest, len(hashes._space))
    assert longest <= module.LONGEST_SPACE + len(blank)
    assert [*found, hashes.finish()] == [oracle.paragraph_hash(text) for text in ("a\n", "b\n")]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (" = Title = \n", True),
        (" = E = mc = \n", True),
        (" = = Part = = \n", False),
        (" = = = Sub = = = \n", False),
        (" = \n", False),
        ("= Title =\n", False),
    ],
)
def test_titles_are_level_one_headings(line: str, title: bool) -> None:
    assert is_title(line) == title


def paragraphs_of(text: str) -> list[str]:
    return marked_groups(text, "file", module.OPENS_PARAGRAPH)


def test_lines_that_no_blank_line_parts_are_paragraphs_where_they_are_many() -> None:
    captions = [f"a dog number {n} runs\n" for n in range(module.LONGEST_LINES + 1)]
    text = "\n" + "".join(captions[:-1])
    assert paragraphs_of(text) == [text]
    assert paragraphs_of(text + captions[-1] + "\n\nlast\n") == [
        "\n" + captions[0],
        *captions[1:-1],
        captions[-1] + "\n\n",
        "last\n",
    ]


def test_lines_are_paragraphs_where_they_are_long() -> None:
    line = "word " * (module.LONGEST_TEXT // 12) + "\n"
    assert paragraphs_of(line * 2 + "\n" + line * 3) == [line * 2 + "\n", line, line, line]
    one = "word " * module.LONGEST_TEXT + "\n"
    assert paragraphs_of(one) == [one]
    assert paragraphs_of(one + "short\n\nother\n") == [one, "short\n\n", "other\n"]


def test_a_line_of_many_has_the_hash_of_a_paragraph_of_its_own() -> None:
    lines_apart, hashes = "one\n\ntwo\n\n", ParagraphHashes()
    many = "one\ntwo\n" * module.LONGEST_LINES
    marked = [
        piece for text in (lines_apart, many) for piece in mark(pieces([text]), BOUNDARIES["file"])
    ]
    assert set(hashes.ended(marked)) == {oracle.paragraph_hash("one"), oracle.paragraph_hash("two")}


OPENS = OPENS_DOCUMENT | ENDS_LINE


def test_documents_take_the_last_name_that_was_said() -> None:
    pieces = [
        MarkedPiece("", OPENS, "a"),
        MarkedPiece("", 0),
        MarkedPiece("", OPENS),
        MarkedPiece("", OPENS, "b"),
    ]
    runs = NameRuns()
    assert [runs.add(piece) for piece in pieces] == [None, None, None, NamedRun(2, "a")]
    assert (runs.finish(), runs.finish()) == (NamedRun(1, "b"), None)


def test_runs_are_cut_to_the_documents_of_a_split() -> None:
    runs = [NamedRun(3, "a"), NamedRun(2, "b"), NamedRun(9, "c")]
    spelled = "aaabbccccccccc"
    for start in range(14):
        for stop in range(start + 1, 15):
            cut = list(runs_between(runs, start, stop))
            assert "".join(name * documents for documents, name in cut) == spelled[start:stop]
            assert all(run.documents for run in cut)


def test_names_are_read_back_by_number_and_old_tokens_have_none(tmp_path: Path) -> None:
    path = tmp_path / names_file("train")
    assert DocumentNames.read(tmp_path, "train").of(0) is None
    path.parent.mkdir()
    runs = [NamedRun(2, "größe\n\udcff"), NamedRun(1, "b")]
    path.write_text("".join(run.dumps() for run in runs))
    assert list(read_runs(path)) == runs
    names = DocumentNames.read(tmp_path, "train")
    assert [names.of(document) for document in range(4)] == [
        "größe\n\udcff",
        "größe\n\udcff",
        "b",
        None,
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"documents": 1, "name": "\x96"}',
        b'{"documents": "1", "name": "a"}',
        b'{"documents": -1, "name": "a"}',
        b'{"documents": true, "name": "a"}',
        b'{"documents": 1, "name": 2}',
        b'{"documents": 1}',
        b"[]",
        b"{",
    ],
)
def test_lines_that_are_no_runs_of_names_are_refused(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    path.write_bytes(b'{"documents": 1, "name": "a"}\n' + line + b"\n")
    with pytest.raises(ArtifactError, match=r"names\.jsonl holds nothing that memlm wrote"):
        list(read_runs(path))
