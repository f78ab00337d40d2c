"""Text to ids and back, token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.store import Store
from stages.lineage.corpus import token_text
from stages.text.excerpt import TextStream, TokenText
from tests.stages.small_text import text_tokens


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokenText]:
    folder = tmp_path_factory.mktemp("text")
    settings = {"word": {}, "char": {}, "byte": {}, "bpe": {"vocab_size": 270}}
    store = Store(folder / "store")
    return {
        name: token_text(text_tokens(store, folder, name, **more))
        for name, more in settings.items()
    }


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte", "bpe"])
def test_text_of_known_tokens_comes_back(texts, tokenizer):
    text = "the cat sees the dog\nand a hen\n"
    ids = texts[tokenizer].ids(text)
    assert "".join(texts[tokenizer].pieces(ids)) == text
    assert texts[tokenizer].eos_is_newline is (tokenizer == "word")


def test_words_are_told_apart_and_unknown_ones_said_to_be(texts):
    ids = texts["word"].ids("the zebra runs\nthe cat")
    assert texts["word"].pieces(ids) == ["the", " <unk>", " runs", "\n", "the", " cat"]
    assert [texts["word"].label(id) for id in ids] == [
        "the",
        "<unk>",
        "runs",
        "<eos>",
        "the",
        "cat",
    ]


@pytest.mark.parametrize("tokenizer", ["byte", "bpe"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_characters_of_several_tokens_come_whole(texts, tokenizer, text):
    pieces = texts[tokenizer].pieces(texts[tokenizer].ids(text))
    assert "".join(pieces) == text
    assert all(piece == "" or "�" not in piece for piece in pieces) or "�" in text


def test_a_character_that_never_ends_is_given_out_last(texts):
    stream = TextStream(texts["byte"])
    assert [stream.add(id) for id in (65, 0xE2, 0x82)] == ["A", "", ""]
    assert stream.end() == "�"
    assert stream.end() == ""


def test_bytes_that_are_no_character_are_spelled_as_bytes(texts):
    assert texts["byte"].label(0xE2) == r"\xe2"
    ids = texts["bpe"].ids("奶é")
    assert "".join(map(texts["bpe"].label, ids)) == r"\xe5\xa5\xb6\xc3\xa9"
    assert texts["byte"].label(65) == "A"
