"""What the bootstrap draws."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.evaluation.figures.places import (
    SHORTEST_GROUP,
    LastWords,
    Places,
    find_last_words,
    grouped,
    is_best,
    units_of,
)
from stages.tokenize import Tokenize, TokenizeConfig
from tests.oracles import last_word as oracle
from tests.stages.text.helpers import examples


def places(*lengths: int) -> Places:
    return Places(SimpleNamespace(), np.cumsum([0, *lengths]), None)


def test_lines_of_a_passage_are_drawn_in_groups() -> None:
    lines = places(*[100] * 20)
    units = units_of(lines, None, "line")
    assert (units.count, units.facts(3)) == (3, {"unit": "group", "block_tokens": 512, "units": 3})
    assert units.of(np.array([0, 599, 600, 1199, 1200, 1999])).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("lengths", [[512, 600, 512], [1, 511, 1, 600, 900, 2], [3], [10, 10]])
def test_groups_are_as_long_as_they_must_be_and_hold_all(lengths: list[int]) -> None:
    groups = grouped(np.cumsum([0, *lengths]))
    sizes = [sum(lengths[a:b]) for a, b in pairwise(groups)]
    assert sum(sizes) == sum(lengths)
    assert len(sizes) == 1 or min(sizes) >= SHORTEST_GROUP


def test_documents_of_their_own_are_drawn_one_by_one() -> None:
    short = places(*[100] * 20)
    assert units_of(short, None, None).count == units_of(short, None, "wikitext").count == 20
    assert units_of(places(600, 700, 800), None, "blank-line").facts(3)["unit"] == "document"
    assert units_of(short, 100, "line").facts(20) == {
        "unit": "block",
        "block_tokens": 100,
        "units": 20,
    }


LEXICON = 5


@st.composite
def scored_splits(
    draw: st.DrawFn,
) -> tuple[list[tuple[int, int]], np.ndarray, np.ndarray, list[int]]:
    """Spans, distributions [T, V] with ties, ids [T], and edges of ranges that cover the split."""
    gaps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=6))
    spans, at = [], 0
    for gap, length in gaps:
        spans.append((at + gap, at + gap + length))
        at += gap + length
    total = at + draw(st.integers(1, 3))
    rows = st.lists(st.integers(1, 3), min_size=LEXICON, max_size=LEXICON)
    scores = np.array(draw(st.lists(rows, min_size=total, max_size=total)), np.float64)
    likely = scores.argmax(axis=1)
    flips = draw(st.lists(st.integers(0, 4), min_size=total, max_size=total))
    ids = np.where(np.array(flips) == 0, (likely + 1) % LEXICON, likely)
    cuts = draw(st.sets(st.integers(1, total), max_size=5))
    return spans, scores / scores.sum(axis=1, keepdims=True), ids, sorted({0, *cuts, total})


@examples
@given(case=scored_splits())
def test_what_ranges_tell_adds_up_to_the_whole_split(
    case: tuple[list[tuple[int, int]], np.ndarray, np.ndarray, list[int]],
) -> None:
    spans, probabilities, ids, edges = case
    real = [span for span in spans if span[0] < span[1]]
    if not real:
        return
    words = LastWords(np.array(real, np.int64))
    log_probs, nll, wrong = torch.from_numpy(probabilities).log(), 0.0, []
    for start, stop in pairwise(edges):
        scored = start + np.flatnonzero(words.scored(start, stop))
        targets = torch.from_numpy(ids[scored])
        nll -= float(log_probs[scored].gather(1, targets[:, None]).sum())
        wrong.append(words.wrong_passages(start, stop, is_best(log_probs[scored], targets).numpy()))
    figures = {
        "tokens": words.tokens,
        "words": words.passages,
        "nll": nll,
        "accuracy": 1 - len(set().union(*wrong)) / words.passages,
    }
    assert figures == pytest.approx(oracle.score(probabilities.tolist(), ids.tolist(), spans))


def test_a_word_that_two_ranges_share_is_wrong_once_and_if_either_part_is() -> None:
    words = LastWords(np.array([[1, 4], [4, 5], [6, 9]]))
    assert words.scored(0, 10).tolist() == [False, *[True] * 4, False, *[True] * 3, False]
    assert words.scored(2, 7).tolist() == [True, True, True, False, True]
    assert words.scored(9, 10).tolist() == [False]
    first = words.wrong_passages(0, 2, np.array([False]))
    second = words.wrong_passages(2, 7, np.array([False, True, False, True]))
    third = words.wrong_passages(7, 10, np.array([True, True]))
    assert (first, second, third) == ([0], [0, 1], [])
    assert (words.tokens, words.passages) == (7, 3)


def test_of_equally_probable_tokens_the_lowest_id_is_the_best() -> None:
    log_probs = torch.tensor(
        [[0.2, 0.4, 0.4], [0.2, 0.4, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.1, 0.2, 0.7]]
    ).log()
    assert is_best(log_probs, torch.tensor([1, 2, 0, 2])).tolist() == [True, False, True, True]
    assert is_best(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)).tolist() == []


PASSAGES = [
    "her pay was a small fortune to claire\n",
    "alone\n",
    "and so it went , on and on \t \n",
    "le café était fermé\u3000\n",
    "`` well , '' he said , `` do n't ''\n",
]


def tokenized(folder: Path, text: str, **settings: str | int) -> Artifact:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    words = {} if "tokenizer" in settings else {"tokenizer": "word", "min_count": 1}
    config = TokenizeConfig.model_validate({"documents": "line", **words, **settings})
    references = {"train": [str(folder / "text.txt")], "test": [str(folder / "text.txt")]}
    return make(Tokenize(), config, references, Store(folder / "store"), Execution()).artifact


@pytest.mark.parametrize(
    "settings", [{}, {"tokenizer": "char"}, {"tokenizer": "bpe", "vocab_size": 300}]
)
def test_the_last_word_of_every_passage_of_a_split_is_scored(
    tmp_path: Path, settings: dict[str, str | int]
) -> None:
    tokens = tokenized(tmp_path, "".join(PASSAGES), **settings)
    words = find_last_words(tokens, "test")
    ids = np.asarray(zarr.open_array(tokens.path / "tokens.zarr/test/ids", mode="r")[:])
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(
        str(tokens.path / "tokenizer.json")
    )
    found = [tokenizer.decode(ids[start:stop].tolist()).strip() for start, stop in words.spans]
    assert found == [oracle.last_word(passage) for passage in PASSAGES]
    assert words.passages == len(PASSAGES)
    assert words.tokens == words.scored(0, len(ids)).sum()


def test_a_split_without_a_word_is_refused(tmp_path: Path) -> None:
    tokens = tokenized(tmp_path, " \n\t\n", tokenizer="char")
    with pytest.raises(DataError, match=r"No document of test in tokens/\w+ has a word"):
        find_last_words(tokens, "test")


def test_tokens_that_do_not_tell_words_apart_are_refused(tmp_path: Path) -> None:
    tokens = tokenized(tmp_path, "ab", tokenizer="char")
    with pytest.raises(UsageError, match="do not tell where words begin and end"):
        find_last_words(tokens, "test")


def test_last_words_that_the_vocabulary_does_not_have_are_counted():
    words = LastWords(np.array([[1, 3], [4, 5], [7, 9]]))
    ids = np.array([7, 7, 7, 7, 2, 7, 0, 0, 1])
    assert words.counted_unknown(ids, 7).unknown == 1
    assert words.counted_unknown(ids, 0).unknown == 1
    assert words.counted_unknown(ids, 5).unknown == 0
