"""Text on standard input, for the commands that read text."""

import io
import json
from pathlib import Path

import pytest

from memlm_cli.work.piped_text import place_piped_text, with_piped_text
from stages.errors import DataError, UsageError
from tests.cli.conftest import Memlm, Screen

TEXT = "the cat sees the dög\n" * 200


def piped(text: str | bytes) -> io.TextIOWrapper:
    """Standard input as a pipe gives it."""
    return io.TextIOWrapper(io.BytesIO(text.encode() if isinstance(text, str) else text))


def test_a_piped_text_gives_the_tokens_of_its_file(memlm: Memlm, tmp_path: Path) -> None:
    options = ["--documents", "line", "--split", "0.8,0.1,0.1", "--json"]
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    from_file = json.loads(memlm("tokenize", file, *options).out)
    from_pipe = json.loads(memlm("tokenize", "-", *options, stdin=piped(TEXT)).out)
    assert from_pipe["reference"] == from_file["reference"]
    assert from_pipe["status"] == "cached"


def test_the_text_is_kept_for_whoever_makes_the_tokens_again(memlm: Memlm, tmp_path: Path) -> None:
    ended = memlm("tokenize", "--train", "-", "--verbose", stdin=piped(TEXT))
    folder = tmp_path / "store" / ended.reference
    words = json.loads((folder / "manifest.json").read_text())["command"]
    (kept,) = (tmp_path / "store" / "piped").iterdir()
    assert kept.read_text("utf-8") == TEXT and str(kept) in words
    again = memlm("tokenize", "--train", kept)
    assert again.reference == ended.reference and "cached" in again.err


def test_a_piped_text_that_is_too_short_is_named_as_it_was_given(
    memlm: Memlm, tmp_path: Path
) -> None:
    ended = memlm("try", "-", stdin=piped("A short text.\n" * 40))
    assert ended.code == 3
    assert "The text on standard input has 560 bytes" in ended.err
    assert list((tmp_path / "store" / "piped").iterdir()) == []


def test_a_refused_text_that_was_there_before_stays(memlm: Memlm, tmp_path: Path) -> None:
    kept = memlm("tokenize", "--train", "-", stdin=piped(TEXT))
    assert kept.code == 0
    refused = memlm("try", "-", stdin=piped(TEXT))
    assert refused.code == 3
    assert len(list((tmp_path / "store" / "piped").iterdir())) == 1


def test_bytes_are_kept_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a\r\nb\xff" * 400_000
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", piped(content))
        first, name, last = with_piped_text(["a.txt", "-", "b.txt"], tmp_path)
        assert (first, last) == ("a.txt", "b.txt") and Path(name).read_bytes() == content
    assert [file.name for file in (tmp_path / "piped").iterdir()] == [Path(name).name]


def test_files_of_each_split_keep_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("text"))
    references = {"source": [], "train": ["a", "-"], "test": ["b"], "tokenizer": "-"}
    placed = place_piped_text(references, tmp_path)
    assert placed | {"train": []} == references | {"train": []}
    assert placed["train"][0] == "a" and Path(placed["train"][1]).read_text() == "text"


def test_what_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped(""))
    with pytest.raises(DataError, match="no text on standard input"):
        with_piped_text(["-"], tmp_path)
    with pytest.raises(UsageError, match="once"):
        place_piped_text({"train": ["-"], "test": ["-"]}, tmp_path)
    monkeypatch.setattr("sys.stdin", Screen())
    with pytest.raises(UsageError, match="pipe it"):
        with_piped_text(["-"], tmp_path)


def test_a_piped_text_is_tried_and_the_same_command_goes_on(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages.training.speed.training_speed", lambda *_: 10_000.0)
    text = "".join(f"the cat {number} sees the dog {number % 7}\n\n" for number in range(2_000))
    first = memlm("try", "-", "--dry-run", stdin=piped(text))
    again = memlm("try", "-", "--dry-run", stdin=piped(text))
    assert first.code == again.code == 0, first.err
    assert "as it was planned before" in again.err
    assert memlm("try", "-", stdin=piped("too short")).code == 3
