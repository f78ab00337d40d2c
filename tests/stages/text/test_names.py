from pathlib import Path

import pytest

from stages.errors import ArtifactError
from stages.text.documents import ENDS_LINE, OPENS_DOCUMENT, MarkedPiece
from stages.text.names import DocumentNames, NamedRun, NameRuns, names_file, read_runs, runs_between

OPENS = OPENS_DOCUMENT | ENDS_LINE


def test_documents_take_the_last_name_that_was_said() -> None:
    pieces = [MarkedPiece("", OPENS, "a"), MarkedPiece("", 0), MarkedPiece("", OPENS), MarkedPiece("", OPENS, "b")]
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
    assert [names.of(document) for document in range(4)] == ["größe\n\udcff", "größe\n\udcff", "b", None]


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
