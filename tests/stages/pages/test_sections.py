"""The files that a page is about."""

from pathlib import Path

import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.pages.lineage import Member
from stages.pages.sections import text_lines
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize


@pytest.mark.parametrize("given", ["source", "splits"])
def test_splits_are_told_with_their_files(tmp_path: Path, given: str) -> None:
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text("one two\n")
    files = {name: str(tmp_path / f"{name}.txt") for name in "abcde"}
    config = TokenizeConfig(tokenizer="word", min_count=1)
    read = {"train": list(files.values()), "test": [files["a"]]}
    if given == "source":
        config = TokenizeConfig(
            tokenizer="word", min_count=1, documents="line", split=(0.5, 0.25, 0.25)
        )
        (tmp_path / "a.txt").write_text("one two\n" * 20)
        read = {"source": [files["a"]]}
    tokens = make(Tokenize(), config, read, Store(tmp_path / "store"), Execution()).artifact
    lines = list(
        text_lines([Member(tokens.reference, tokens), Member("tokens/0123456789ab", None)])
    )
    if given == "source":
        assert lines == ["a.txt: train 30, valid 15, test 15 tokens"]
    else:
        assert lines == ["a.txt, b.txt, c.txt and 2 more: train 15 tokens", "a.txt: test 3 tokens"]
