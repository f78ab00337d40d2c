"""Witten-Bell n-grams against the recursion, one token at a time: of texts, and counting on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluation.figures import ngram
from stages.evaluation.figures.ngram import Ngrams, Pieces, counting_on
from tests.oracles import ngram as slow

START = 0


@st.composite
def texts(draw):
    """Counted texts and a scored one, each as a list of pieces; the vocabulary and n."""
    vocabulary = draw(st.integers(1, 6))
    pieces = st.lists(st.lists(st.integers(0, vocabulary - 1), max_size=12), max_size=3)
    return draw(st.lists(pieces, max_size=3)), draw(pieces), vocabulary, draw(st.integers(1, 6))


def of_pieces(pieces, dtype=np.uint16):
    """The text of some pieces."""
    offsets = np.cumsum([0, *map(len, pieces)])
    return Pieces.of_documents(
        np.array([token for piece in pieces for token in piece], dtype), offsets
    )


def events_of(pieces, n):
    return [event for piece in pieces for event in slow.events(piece, n, START)]


@given(texts(), st.sampled_from([1, 5, 1 << 18]))
def test_every_token_has_the_probability_of_the_recursion(case, at_once):
    counted, scored, vocabulary, n = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram, "TOKENS_AT_ONCE", at_once)
        found = Ngrams.count([of_pieces(text) for text in counted], n, START, vocabulary).p(
            of_pieces(scored)
        )
    joined = [event for text in counted for event in events_of(text, n)]
    expected = [
        slow.probability(word, context, joined, vocabulary)
        for context, word in events_of(scored, n)
    ]
    assert found == pytest.approx(expected, rel=1e-12)


@given(texts(), st.integers(1, 15), st.booleans())
def test_counting_in_the_last_tokens_is_the_recursion_of_these(case, limit, anew):
    _, scored, vocabulary, n = case
    stream = of_pieces(scored)
    found = counting_on(stream, n, START, vocabulary, anew, limit)
    events = events_of(scored, n)
    begins = [0] * len(events) if not anew else stream.first
    expected = [
        slow.probability(
            word, context, events[max(begins[place], place - limit) : place], vocabulary
        )
        for place, (context, word) in enumerate(events)
    ]
    assert found == pytest.approx(expected, rel=1e-12)


@given(texts())
def test_probabilities_after_every_context_sum_to_one(case):
    counted, scored, vocabulary, n = case
    ngrams = Ngrams.count([of_pieces(text) for text in counted], n, START, vocabulary)
    before = [token for piece in scored for token in piece]
    each = [ngrams.p(of_pieces([[*before, word]]))[-1] for word in range(vocabulary)]
    assert sum(each) == pytest.approx(1, rel=1e-12)


@given(texts())
def test_counting_on_has_the_probability_of_the_recursion_over_what_was_before(case):
    _, scored, vocabulary, n = case
    expected = [p for piece in scored for p in slow.counting_on(piece, n, START, vocabulary)]
    assert counting_on(of_pieces(scored), n, START, vocabulary) == pytest.approx(
        expected, rel=1e-12
    )
    events = events_of(scored, n)
    across = [
        slow.probability(w, h, events[:place], vocabulary) for place, (h, w) in enumerate(events)
    ]
    assert counting_on(of_pieces(scored), n, START, vocabulary, restarts=False) == pytest.approx(
        across, rel=1e-12
    )
    stream = [token for piece in scored for token in piece]
    found = counting_on(Pieces(np.array(stream, np.int64)), n, START, vocabulary)
    assert found == pytest.approx(slow.counting_on(stream, n, START, vocabulary), rel=1e-12)


def test_the_largest_vocabulary_that_tokens_may_have_is_counted_without_overflow():
    last = 2**31 - 1
    text = [last, last - 1, last, last - 1, last]
    events = slow.events(text, 3, last)
    pieces = Pieces(np.array(text, np.uint32))
    expected = [slow.probability(word, context, events, last + 1) for context, word in events]
    assert Ngrams.count([pieces], 3, last, last + 1).p(pieces) == pytest.approx(expected, rel=1e-12)
    on = slow.counting_on(text, 3, last, last + 1)
    assert counting_on(pieces, 3, last, last + 1) == pytest.approx(on, rel=1e-12)


def test_without_a_text_every_token_is_as_likely():
    found = Ngrams.count([], 3, START, 50).p(Pieces(np.array([0, 49], np.uint16)))
    assert np.log(found) == pytest.approx(-math.log(50))
