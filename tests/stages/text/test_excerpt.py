"""Places of a corpus, against its text cut by hand."""

import re

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.lineage.corpus import token_text
from stages.text import excerpt as module
from stages.text.excerpt import SplitText
from tests.stages.comparison.made import corpus
from tests.stages.small_store import array
from tests.stages.small_text import story, text_tokens


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("text")
    return text_tokens(Store(folder / "store"), folder)


def test_every_row_is_told_with_its_document_and_the_words_around(tokens, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 5)
    split = SplitText.of(tokens.zarr("tokens.zarr"), "train", token_text(tokens))
    documents = [part + "\n\n" for part in story(27, 0).split("\n\n")[:-1]]
    row = 0
    for number, document in enumerate(documents):
        words = document.replace("\n", " <eos> ").split()
        for offset, word in enumerate(words):
            found = split.at(row, before=4, after=2)
            assert (found.split, found.row, found.document, found.offset) == (
                "train",
                row,
                number,
                offset,
            )
            assert found.token.strip() == word
            assert (
                found.before.replace("\n", " <eos> ").split() == words[max(0, offset - 4) : offset]
            )
            assert found.after.replace("\n", " <eos> ").split() == words[offset + 1 : offset + 3]
            row += 1
    assert row == len(array(tokens, "tokens.zarr", "train/ids"))


def test_a_corpus_is_read_a_block_at_a_time(tokens, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 7)
    read = []

    class Ids:
        def __getitem__(self, part: slice) -> np.ndarray:
            read.append(part)
            return np.zeros(100, np.int64)[part]

    split = SplitText("train", Ids(), np.array([0, 100]), token_text(tokens))
    for row in (50, 51, 50):
        split.at(row, before=2, after=1)
    assert read == [slice(42, 49), slice(49, 56)]


LINES = "né a\n  bb — c\n"


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe"])
@pytest.mark.parametrize("at_once", [False, True])
def test_parts_join_to_the_text_of_the_document(tmp_path, tokenizer, at_once):
    size = {"vocab_size": 300} if tokenizer == "bpe" else {}
    made = corpus(
        Store(tmp_path / "store"),
        tmp_path,
        {"train": LINES, "test": LINES},
        tokenizer=tokenizer,
        **size,
    )
    split = SplitText.of(made.zarr("tokens.zarr"), "test", token_text(made))
    rows = np.arange(made.metrics["splits"]["test"]["tokens"])
    found = split.excerpts(rows, 100, 100) if at_once else [split.at(row, 100, 100) for row in rows]
    lines = LINES.splitlines(keepends=True)
    for row, one in zip(rows, found, strict=True):
        line = lines[one.document] + "<eos>" * (tokenizer == "bpe")
        assert one.row == row
        if one.token in line:
            assert one.before + one.token + one.after == line
        else:  # the first byte of a character that has several
            assert tokenizer != "char" and re.fullmatch(r"(\\x[0-9a-f]{2})+", one.token)
            assert one.before + one.after == line


def test_rows_come_in_the_order_in_which_they_are_asked_for(tmp_path):
    made = corpus(Store(tmp_path / "store"), tmp_path, {"train": "a b\n", "test": "a b\nb a b\n"})
    split = SplitText.of(made.zarr("tokens.zarr"), "test", token_text(made))
    found = split.excerpts(np.array([6, 1, 3]), 1, 1)
    assert [(one.before.strip(" "), one.token, one.after) for one in found] == [
        ("b", "<eos>", ""),
        ("a", " b", "\n"),
        ("", "b", " a"),
    ]
    assert split.excerpts([], 1, 1) == []
