from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.text import bpe
from stages.text.bpe import BpeTokenizer, HuggingFaceTokenizer
from tests.stages.text.helpers import as_pieces, examples

TRAIN = "The cat's food , we'll eat it ; 12 mats İß 世界 naïve ...\n" * 3
TOKENIZERS = {lowercase: BpeTokenizer.train([as_pieces(TRAIN)], 310, lowercase) for lowercase in (False, True)}
CHARACTERS = "theWLsd 'cat's'll12½Ⅷ²_.,;…\t\r\n\x0b\x0c\x1c\x85\u00a0\u2028\u3000üΣßİ世界a\u0301\u200d🌍\U00010fff"
LINES = st.lists(st.text(st.sampled_from(CHARACTERS), max_size=60) | st.text(max_size=20), min_size=1, max_size=6)


def by_the_library(tokenizer: HuggingFaceTokenizer, texts: Sequence[str]) -> list[list[int]]:
    encode = tokenizer.huggingface().encode
    return [encode(text, add_special_tokens=False).ids for text in texts]


def by_words(tokenizer: HuggingFaceTokenizer, texts: Sequence[str]) -> list[list[int]]:
    ids, counts = tokenizer.encode_texts(texts)
    ends = counts.cumsum().tolist()
    return [ids[a:b].tolist() for a, b in zip([0, *ends], ends, strict=False)]


@pytest.fixture
def always_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "FEW_CHARACTERS", -1)


@pytest.mark.usefixtures("always_words")
@pytest.mark.parametrize("lowercase", [False, True])
@example(["a  b \n", "\n", "", " \t x", "don't DON'T 'RE'"])
@example(["<eos> at the end<eos>\n"])
@example(["two\nlines\n"])
@examples
@given(texts=LINES)
def test_words_have_the_ids_that_the_library_gives_to_their_lines(lowercase: bool, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[lowercase]
    assert by_words(tokenizer, texts) == by_the_library(tokenizer, texts)


@pytest.mark.usefixtures("always_words")
def test_a_token_that_was_added_is_found_before_text_is_cut() -> None:
    tokenizer = BpeTokenizer.train([as_pieces(TRAIN)], 310, False)
    tokenizer.huggingface().add_tokens(["cat's fo"])
    texts = ["the cat's food\n", "the cat food\n"]
    assert by_words(tokenizer, texts) == by_the_library(tokenizer, texts)


@pytest.mark.usefixtures("always_words")
def test_words_that_are_held_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "MOST_WORDS", 20)
    tokenizer = BpeTokenizer.train([as_pieces(TRAIN)], 310, False)
    for number in range(12):
        texts = [f"the cat{i} eats {number}\n" for i in range(8)]
        assert by_words(tokenizer, texts) == by_the_library(tokenizer, texts)
        assert tokenizer._words is not None
        assert len(tokenizer._words._places) < 60


def test_a_long_text_is_not_given_to_the_library_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = bpe.WordEncoder._encode_new

    def watched(self: bpe.WordEncoder) -> None:
        encoded.extend(list(self._places)[len(self._ends) - 1 :])
        encode(self)

    monkeypatch.setattr(bpe.WordEncoder, "_encode_new", watched)
    tokenizer = BpeTokenizer.train([as_pieces(TRAIN)], 310, False)
    texts = ["the cat's mat\n"] * 1000
    assert by_words(tokenizer, texts) == by_the_library(tokenizer, texts[:1]) * 1000
    assert sorted(encoded) == ["\n", " cat", " mat", "'s", "the"]


def test_other_layouts_are_the_library_s() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    assert HuggingFaceTokenizer(made)._words is None
    dropping = BpeTokenizer.train([as_pieces(TRAIN)], 310, False).huggingface()
    dropping.model.dropout = 0.5
    assert HuggingFaceTokenizer(dropping)._words is None
