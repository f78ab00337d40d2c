"""Places of a corpus, against its text cut by hand."""

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.lineage.corpus import token_text
from stages.text import excerpt as sources
from stages.text.excerpt import SplitText
from tests.stages.small_store import array
from tests.stages.small_text import story, text_tokens


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("text")
    return text_tokens(Store(folder / "store"), folder)


def test_every_row_is_told_with_its_document_and_the_words_around(tokens, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 5)
    split = SplitText.of(tokens.zarr("tokens.zarr"), "train", token_text(tokens))
    documents = [part + "\n\n" for part in story(27, 0).split("\n\n")[:-1]]
    row = 0
    for number, document in enumerate(documents):
        words = document.replace("\n", " <eos> ").split()
        for offset, word in enumerate(words):
            found = split.at(row, before=4, after=2)
            assert (found.split, found.row, found.document, found.offset) == ("train", row, number, offset)
            assert found.token.strip() == word
            assert found.before.replace("\n", " <eos> ").split() == words[max(0, offset - 4) : offset]
            assert found.after.replace("\n", " <eos> ").split() == words[offset + 1 : offset + 3]
            row += 1
    assert row == len(array(tokens, "tokens.zarr", "train/ids"))


def test_a_corpus_is_read_a_block_at_a_time(tokens, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 7)
    read = []

    class Ids:
        def __getitem__(self, part: slice) -> np.ndarray:
            read.append(part)
            return np.zeros(100, np.int64)[part]

    split = SplitText("train", Ids(), np.array([0, 100]), token_text(tokens))
    for row in (50, 51, 50):
        split.at(row, before=2, after=1)
    assert read == [slice(42, 49), slice(49, 56)]
