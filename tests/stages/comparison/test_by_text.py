"""Comparisons of one text in two tokenizations, worked out by hand."""

import numpy as np
import pytest

from stages.comparison.by_text import lengths
from stages.comparison.compare import compare, write_token_table
from stages.comparison.settings import FIELDS, ComparisonSettings
from stages.errors import ArtifactError, UsageError
from stages.text.tokens import open_split
from tests.stages.comparison.made import corpus, report

TEXT = {"train": "ab c d\n", "test": "ab c\nd\n"}
"""Documents of 3 and 2 words, line ends included, and of 5 and 2 characters."""
BY_WORD = (1.0, 2.0, 1.0, 3.0, 1.0)
BY_CHARACTER = (1.0, 0.5, 1.0, 0.5, 0.5, 1.0, 1.5)
"""Sums by document: 4 and 4 nats by word, 3.5 and 2.5 by character."""


def compared(a, b, **settings):
    return compare(a, b, ComparisonSettings(**settings))


def test_two_documents_by_hand(store, tmp_path):
    words, characters = (corpus(store, tmp_path, TEXT, tokenizer=name) for name in ("word", "char"))
    found = compared(report(store, words, BY_WORD), report(store, characters, BY_CHARACTER))
    assert (found["paired_on"], found["tokens_a"], found["tokens_b"]) == ("text", 5, 7)
    assert found.keys() <= FIELDS.keys()
    word, character = found["per"]
    assert (word["unit"], word["count"], word["nll_a"], word["nll_b"]) == ("word", 5, 8 / 5, 6 / 5)
    assert word["difference"] == pytest.approx(-2 / 5)
    # Of 4 resamples one is the first document alone (-0.5 in 3 words), one the second alone (-1.5
    # in 2).
    assert word["interval"] == pytest.approx([-1.5 / 2, -0.5 / 3])
    assert word["perplexity_ratio"] == pytest.approx(2.718281828 ** (-2 / 5))
    assert (character["unit"], character["count"], character["difference"]) == (
        "character",
        7,
        pytest.approx(-2 / 7),
    )
    assert character["interval"] == pytest.approx([-1.5 / 2, -0.5 / 5])
    assert character["perplexity_ratio_interval"] == pytest.approx(
        [2.718281828**-0.75, 2.718281828**-0.1]
    )
    assert found["bootstrap"]["unit"] == "document" and found["bootstrap"]["units_won"] == 2
    swapped = compared(report(store, characters, BY_CHARACTER), report(store, words, BY_WORD))
    assert [per["difference"] for per in swapped["per"]] == pytest.approx([2 / 5, 2 / 7])


def test_words_that_are_whole_sentences_are_left_out(store, tmp_path):
    text = {"train": "a b\n", "test": "a" * 30 + "\n" + "b" * 30 + "\n"}
    words, characters = (corpus(store, tmp_path, text, tokenizer=name) for name in ("word", "char"))
    found = compared(report(store, words, [1.0] * 4), report(store, characters, [0.1] * 62))
    assert [per["unit"] for per in found["per"]] == [
        "word",
        "character",
    ]  # 15.5 characters to a word and line end
    text = {"train": "a b\n", "test": "a" * 60 + "\n" + "b" * 60 + "\n"}
    words, characters = (corpus(store, tmp_path, text, tokenizer=name) for name in ("word", "char"))
    found = compared(report(store, words, [1.0] * 4), report(store, characters, [0.1] * 122))
    assert [per["unit"] for per in found["per"]] == ["character"]


def test_one_document_is_cut_into_paragraphs(store, tmp_path):
    text = {"train": "ab c d\n", "test": "ab c\n\nd\n"}
    words, characters = (
        corpus(store, tmp_path, text, tokenizer=n, documents="file") for n in ("word", "char")
    )
    found = compared(report(store, words, [1.0] * 6), report(store, characters, [1.0] * 8))
    assert (found["bootstrap"]["unit"], found["bootstrap"]["units"]) == ("paragraph", 2)
    # 4 words and 6 characters with the blank line, then 2 and 2.
    assert [per["interval"] for per in found["per"]] == [
        pytest.approx([0.0, 0.5]),
        pytest.approx([0.0, 2 / 6]),
    ]


def test_one_paragraph_has_no_interval(store, tmp_path):
    text = {"train": "ab c d\n", "test": "ab c\nd\n"}
    words, characters = (
        corpus(store, tmp_path, text, tokenizer=n, documents="file") for n in ("word", "char")
    )
    found = compared(report(store, words, BY_WORD), report(store, characters, BY_CHARACTER))
    assert [per["interval"] for per in found["per"]] == [None, None]
    assert found["per"][0]["difference"] == pytest.approx(-2 / 5)


def test_two_word_vocabularies_are_compared_by_the_word(store, tmp_path):
    """<unk> hides how many characters a word has; shares of it are told."""
    all_words = corpus(store, tmp_path, TEXT)
    fewer = corpus(store, tmp_path, TEXT, vocab_size=4)
    found = compared(report(store, all_words, BY_WORD), report(store, fewer, BY_WORD))
    assert found["paired_on"] == "text" and [per["unit"] for per in found["per"]] == ["word"]
    assert (found["unknown_rate_a"], found["unknown_rate_b"]) == (0.0, pytest.approx(1 / 5))


def test_letter_case_is_a_matter_of_tokenizers(store, tmp_path):
    text = {"train": "Ab c D\n", "test": "Ab c\nD\n"}
    cased, lowered = (
        corpus(store, tmp_path, text, tokenizer="char", lowercase=lower) for lower in (False, True)
    )
    found = compared(report(store, cased, BY_CHARACTER), report(store, lowered, BY_CHARACTER))
    assert [(per["unit"], per["count"], per["difference"]) for per in found["per"]] == [
        ("word", 5, 0),
        ("character", 7, 0),
    ]


def test_last_words_are_compared_by_the_passage(store, tmp_path):
    text = {"train": "ab c d\n", "test": "c ab\nd\n\nd c\n"}
    words, characters = (corpus(store, tmp_path, text, tokenizer=name) for name in ("word", "char"))
    a = report(store, words, (1.0, 2.0, 3.0), score="last-word")
    b = report(store, characters, (0.5, 1.0, 1.0, 1.0), score="last-word")
    (word,) = compared(a, b)["per"]
    assert (word["unit"], word["count"], word["nll_a"], word["nll_b"]) == (
        "word",
        3,
        2.0,
        pytest.approx(3.5 / 3),
    )
    # Passages differ by 0.5, -1 and -2: one resample of 27 is the first alone, one the last.
    assert word["interval"] == pytest.approx([-2, 0.5])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"test": "abcc\nd\n"}, "words"),
        ({"test": "ab d\nc\n"}, "paragraph 0"),
        ({"test": "ab c\nd\n\n"}, "characters"),
    ],
)
def test_another_text_is_refused(store, tmp_path, other, said):
    a = corpus(store, tmp_path, TEXT)
    b = corpus(store, tmp_path, {**TEXT, **other}, tokenizer="char")
    with pytest.raises(ArtifactError, match=said) as error:
        compared(
            report(store, a, BY_WORD),
            report(store, b, [1.0] * b.metrics["splits"]["test"]["tokens"]),
        )
    assert a.reference in str(error.value) and b.reference in str(error.value)


def test_other_documents_are_refused(store, tmp_path):
    text = {"train": "ab c d\n", "test": "ab\n\nc\n\nd\n"}
    a = corpus(store, tmp_path, text, documents="blank-line")
    b = corpus(store, tmp_path, text, documents="file", tokenizer="char")
    with pytest.raises(ArtifactError, match="documents"):
        compared(report(store, a, [1.0] * 8), report(store, b, [1.0] * 9))


def test_as_many_documents_cut_elsewhere_are_refused(store, tmp_path):
    """Three paragraphs, of which two are the first document of the one and the last of the other."""
    tokens = []
    for tokenizer, files in (("word", ("ab\n\nc\n\n", "d\n")), ("char", ("ab\n\n", "c\n\nd\n"))):
        folder = tmp_path / tokenizer
        folder.mkdir()
        for number, text in enumerate(files):
            (folder / f"{number}.txt").write_text(text)
        texts = {"train": "ab c d\n", "test": folder}
        tokens.append(corpus(store, tmp_path, texts, tokenizer=tokenizer, documents="file"))
    with pytest.raises(ArtifactError, match="documents"):
        compared(report(store, tokens[0], [1.0] * 8), report(store, tokens[1], [1.0] * 9))


def test_what_needs_the_same_tokens_is_refused(store, tmp_path):
    words, characters = (corpus(store, tmp_path, TEXT, tokenizer=name) for name in ("word", "char"))
    a, b = report(store, words, BY_WORD), report(store, characters, BY_CHARACTER)
    with pytest.raises(UsageError, match="block"):
        compared(a, b, block_tokens=2)
    with pytest.raises(UsageError, match="csv"):
        write_token_table(tmp_path / "table.csv", a, b, ComparisonSettings())


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe"])
def test_lengths_of_documents_are_those_of_their_text(store, tmp_path, tokenizer):
    documents = ["one two\n", "né — c\u3000d\n", " \t lone\u2003word  \n", "last without an end"]
    text = {"train": "".join(documents), "test": "".join(documents)}
    tokens = corpus(store, tmp_path, text, tokenizer=tokenizer)
    offsets = np.asarray(open_split(tokens.zarr("tokens.zarr"), "test").doc_offsets[:])
    found = lengths(tokens, "test", offsets)
    assert found["character"].tolist() == [len(document) for document in documents]
    assert found["word"].tolist() == [len(document.split()) + 1 for document in documents]
