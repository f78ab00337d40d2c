import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.metrics import Counts, figures, perplexity


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=20))
def test_figures_are_geometric_means_of_probabilities(probabilities):
    tokens = len(probabilities)
    got = figures(
        -sum(math.log(p) for p in probabilities), Counts(tokens, 3 * tokens, 4 * tokens, 2 * tokens)
    )
    product = math.prod(probabilities)
    assert got["perplexity"] == pytest.approx(product ** (-1 / tokens))
    assert got["word_perplexity"] == pytest.approx(product ** (-1 / (2 * tokens)))
    assert 2 ** -got["bits_per_character"] == pytest.approx(product ** (1 / (3 * tokens)))
    assert 2 ** -got["bits_per_byte"] == pytest.approx(product ** (1 / (4 * tokens)))
    assert math.exp(got["nll"]) == pytest.approx(got["perplexity"])


def test_figures_that_are_not_finite_are_none():
    assert figures(math.inf, Counts(1, 1, 1, 1)) == dict.fromkeys(figures(1.0, Counts(1, 1, 1, 1)))
    assert perplexity(1e6, 1) is None
    assert figures(1.0, Counts(1, 0, 0, 0)) == {
        "nll": 1.0,
        "perplexity": math.e,
        "bits_per_character": None,
        "bits_per_byte": None,
        "word_perplexity": None,
    }


def test_counts_come_from_what_tokenize_measured():
    split = {
        "tokens": 1,
        "characters": 2,
        "bytes": 3,
        "words": 4,
        "documents": 5,
        "unknown_rate": 0.0,
    }
    assert Counts.of(split) == (1, 2, 3, 4)
