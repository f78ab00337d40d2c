"""Tokens with the text around them."""

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.comparison.context import Contexts
from stages.comparison.places import scored_places
from tests.stages.comparison.made import corpus

TEXT = "né a\n  bb — c\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe"])
@pytest.mark.parametrize("at_once", [False, True])
def test_parts_join_to_the_text_of_the_document(store, tmp_path, tokenizer, at_once):
    size = {"vocab_size": 300} if tokenizer == "bpe" else {}
    tokens = corpus(store, tmp_path, {"train": TEXT, "test": TEXT}, tokenizer=tokenizer, **size)
    places = scored_places(tokens, "test", "all")
    contexts, every = Contexts(tokens, places, 100), np.arange(len(places))
    found = contexts.read(every) if at_once else [contexts.read(every[n : n + 1])[0] for n in every]
    lines = TEXT.splitlines(keepends=True)
    for place, context in zip(every, found, strict=True):
        line = lines[places.documents(np.array([place]))[0]] + "<eos>" * (tokenizer == "bpe")
        if context.text in line:
            assert "".join(context) == line
        else:  # the first byte of a character that has several
            assert tokenizer != "char" and len(context.text) == 1
            assert context.before + context.after == line


def test_words_stand_apart_and_lines_end(store, tmp_path):
    tokens = corpus(store, tmp_path, {"train": "a b\n", "test": "a b\nb a b\n"})
    contexts = Contexts(tokens, scored_places(tokens, "test", "all"), 1)
    assert [(one.before.strip(" "), one.text, one.after) for one in contexts.read(np.array([6, 1, 3]))] == [
        ("b", "\n", ""),
        ("a", " b", "\n"),
        ("", "b", " a"),
    ]


def test_no_token_is_no_context(store, tmp_path):
    tokens = corpus(store, tmp_path, {"train": "a b\n", "test": "a b\n"})
    assert Contexts(tokens, scored_places(tokens, "test", "all"), 1).read(np.empty(0, np.int64)) == []
