"""Witten-Bell n-grams against the recursion, one token at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluation.results.ngram import Ngrams
from tests.oracles.ngram import probability

START = 0


@st.composite
def texts(draw):
    """A counted text, one that is scored, what stands before it, the vocabulary and n."""
    vocabulary = draw(st.integers(1, 6))
    ids = st.integers(0, vocabulary - 1)
    counted, scored, before = (draw(st.lists(ids, max_size=most)) for most in (30, 10, 4))
    return counted, scored, before, vocabulary, draw(st.integers(1, 3))


@given(texts())
def test_every_token_has_the_probability_of_the_recursion(case):
    counted, scored, before, vocabulary, n = case
    ngrams = Ngrams.count(np.array(counted, np.uint16), n, START, vocabulary)
    found = ngrams.log_p(np.array(scored, np.uint16), np.array(before, np.uint16))
    stream = [START] * (n - 1) + before + scored
    places = range(len(stream) - len(scored), len(stream))
    contexts = [stream[place - n + 1 : place] for place in places]
    expected = [probability(w, h, counted, START, vocabulary) for w, h in zip(scored, contexts, strict=True)]
    assert np.exp(found) == pytest.approx(expected, rel=1e-12)
    if not before:
        assert ngrams.log_p(np.array(scored, np.int64)).tolist() == found.tolist()


@given(texts())
def test_probabilities_after_every_context_sum_to_one(case):
    counted, _, before, vocabulary, n = case
    ngrams = Ngrams.count(np.array(counted, np.int64), n, START, vocabulary)
    each = [ngrams.log_p(np.array([word]), np.array(before, np.int64))[0] for word in range(vocabulary)]
    assert np.exp(each).sum() == pytest.approx(1, rel=1e-12)


def test_the_largest_vocabulary_that_tokens_may_have_is_counted_without_overflow():
    last = 2**31 - 1
    counted = [last, last - 1, last, last - 1, last]
    ngrams = Ngrams.count(np.array(counted, np.uint32), 3, last, last + 1)
    (found,) = ngrams.log_p(np.array([last], np.uint32), np.array([last, last - 1], np.uint32))
    assert found == pytest.approx(math.log(probability(last, [last, last - 1], counted, last, last + 1)), rel=1e-12)


def test_without_a_text_every_token_is_as_likely():
    found = Ngrams.count(np.zeros(0, np.uint16), 3, START, 50).log_p(np.array([0, 49], np.uint16))
    assert found == pytest.approx(-math.log(50))
