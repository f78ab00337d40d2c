import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit

from stages.text.vocabulary import by_frequency, lower, words
from tests.oracles import text as oracle
from tests.stages.text.helpers import examples

EVERY_CHARACTER = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


def test_every_white_space_character_separates_words_as_in_the_library() -> None:
    text = "".join(f"a{character}" for character in EVERY_CHARACTER)
    expected = [word for word, _ in WhitespaceSplit().pre_tokenize_str(text)]
    assert words(text) == expected == oracle.words(text)
    spaced = text.translate(dict.fromkeys(range(0x1C, 0x20)))
    assert words(spaced) == oracle.words(spaced)


def test_every_character_is_lower_cased_as_in_the_library() -> None:
    text = "".join(EVERY_CHARACTER) + "ΟΔΟΣ İ"
    assert lower(text) == Lowercase().normalize_str(text)
    assert lower("ABC xyz") == "abc xyz"


@examples
@given(st.text(st.sampled_from("ab \n\x1c\x85"), max_size=60))
def test_words(text: str) -> None:
    assert words(text) == oracle.words(text)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["b", "<eos>", "a", "c", "d", "<unk>"]),
        (5, ["b", "<eos>", "a", "c", "<unk>"]),
        (4, ["b", "<eos>", "<unk>", "a"]),
        (3, ["<unk>", "b", "<eos>"]),
    ],
)
def test_ids_fall_with_count_and_the_rest_is_unknown(limit: int | None, expected: list[str]) -> None:
    counts = Counter({"d": 1, "c": 2, "a": 2, "b": 4, "<eos>": 3})
    assert list(by_frequency(counts, limit)) == expected
    assert list(by_frequency(counts, limit).values()) == list(range(len(expected)))


@pytest.mark.parametrize(
    ("limit", "min_count", "expected"),
    [
        (None, 2, ["b", "<eos>", "a", "c", "<unk>"]),
        (None, 3, ["<unk>", "b", "<eos>"]),
        (4, 2, ["b", "<eos>", "<unk>", "a"]),
        (None, 9, ["<unk>", "<eos>"]),
    ],
)
def test_rare_types_are_unknown(limit: int | None, min_count: int, expected: list[str]) -> None:
    counts = Counter({"d": 1, "c": 2, "a": 2, "b": 4, "<eos>": 3})
    assert list(by_frequency(counts, limit, min_count)) == expected
