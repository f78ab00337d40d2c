"""Sorting and search against contexts that are compared one by one."""

import time
from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.suffixes.matches import SortedContexts, SuffixRange
from stages.suffixes.text import LONGEST, Text, sort_contexts
from tests.oracles.suffixes import contexts, shared


def random_text(
    random: np.random.Generator, tokens: int, vocabulary: int, documents: int
) -> tuple[Text, list]:
    ids = random.integers(0, vocabulary, tokens).astype(np.uint32)
    if tokens > 8:  # a part that stands there twice
        length = int(random.integers(1, tokens // 2))
        ids[-length:] = ids[:length]
    starts = np.unique(np.r_[0, random.integers(0, tokens + 1, documents - 1), tokens])
    return Text.of(ids, starts, vocabulary), contexts(ids, starts)


SHAPES = st.tuples(
    st.integers(0, 60),
    st.sampled_from([1, 2, 3, 14, 70_000, 2**31]),
    st.integers(1, 4),
    st.integers(0),
)


@settings(max_examples=80, deadline=None)
@given(SHAPES, st.integers(1, 40), st.integers(1, 7))
def test_they_are_those_of_comparing_one_by_one(
    shape: tuple[int, int, int, int], asked: int, k: int
) -> None:
    tokens, vocabulary, documents, seed = shape
    random = np.random.default_rng(seed)
    text, known = random_text(random, tokens, vocabulary, documents)
    queries, asking = random_text(random, asked, vocabulary, 2)
    order, links = sort_contexts(text, np.arange(tokens))
    assert order.tolist() == sorted(range(tokens), key=lambda i: (known[i], i))
    assert links.tolist() == [0, *(shared(known[i], known[j]) for i, j in pairwise(order))][:tokens]

    found = SortedContexts(text, order, links)
    located = found.locate(queries, np.arange(asked))
    same = np.array([[shared(one, other) for other in known] for one in asking]).reshape(
        asked, tokens
    )
    assert located.longest.tolist() == same.max(1, initial=0).tolist()
    assert located.rank.tolist() == [bisect_left(sorted(known), one) for one in asking]
    within, without = (np.sort(random.integers(0, tokens + 1, (asked, 2)), 1) for _ in range(2))
    best = found.best(located, k, within=within, without=without)
    for row in range(asked):
        legal = [
            i
            for i in range(*within[row])
            if not without[row, 0] <= i < without[row, 1] and same[row, i]
        ]
        assert best.shared[row].tolist() == (sorted(same[row, legal], reverse=True) + [0] * k)[:k]
        places = best.positions[row][best.shared[row] > 0].tolist()
        assert set(places) <= set(legal) and len(set(places)) == len(places)
        assert same[row, places].tolist() == best.shared[row][: len(places)].tolist()
        assert (best.positions[row][len(places) :] == -1).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 120), st.integers(1, 4), st.integers(0), st.integers(1, 5), st.data())
def test_matches_in_the_past_do_not_depend_on_what_follows(
    tokens: int, vocabulary: int, seed: int, k: int, data: st.DataObject
) -> None:
    """Later contexts lie among earlier ones in the order, and must take no place of theirs."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, vocabulary, tokens).astype(np.uint32)
    position = data.draw(st.integers(1, tokens - 1))
    other = np.r_[ids[:position], random.integers(0, vocabulary, 200)].astype(np.uint32)
    found = []
    for text_ids in (ids, other, ids[: position + 1]):
        contexts = SortedContexts.of(Text.of(text_ids, np.array([0, len(text_ids)]), vocabulary))
        rank = np.flatnonzero(contexts.order == position)
        located = SuffixRange(rank, contexts.shared[rank], np.array([position + 1], np.uint8))
        found.append(contexts.best(located, k, within=np.array([[0, position]])))
    for matches in found[1:]:
        assert matches.positions.tolist() == found[0].positions.tolist()
        assert matches.shared.tolist() == found[0].shared.tolist()


@pytest.mark.parametrize("period", [1, 2, 5])
def test_long_repetition_is_compared_up_to_the_longest(period: int) -> None:
    ids = (np.arange(700) % period).astype(np.uint16)
    starts = np.array([0, 300, 700])
    found, known = SortedContexts.of(Text.of(ids, starts, period)), contexts(ids, starts)
    assert found.order.tolist() == sorted(range(700), key=lambda i: (known[i], i))
    best = found.best(
        found.locate(found.text, np.arange(700)), 3, without=np.arange(700)[:, None] + [0, 1]
    )
    assert best.shared.max() == LONGEST
    for row in (0, 299, 600):
        others = sorted(
            (shared(known[row], known[i]) for i in range(700) if i != row), reverse=True
        )
        assert best.shared[row].tolist() == others[:3]


def test_one_token_repeated_takes_no_longer_than_its_rounds() -> None:
    def seconds(ids: np.ndarray) -> float:
        text, started = Text.of(ids, np.array([0, len(ids)]), 4096), time.process_time()
        sort_contexts(text, np.arange(len(ids)))
        return time.process_time() - started

    rounds = LONGEST // Text.of(np.zeros(1, np.uint16), np.array([0, 1]), 4096).per_word + 1
    mixed, same = (
        np.random.default_rng(0).integers(0, n, 40_000).astype(np.uint16) for n in (4096, 1)
    )
    assert seconds(same) < 4 * rounds * max(seconds(mixed), 0.005)
