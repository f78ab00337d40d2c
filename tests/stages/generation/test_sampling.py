"""Drawing tokens, against sorted lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings import validated
from stages.errors import UsageError
from stages.generation.request import GenerationRequest
from stages.generation.sampling import Sampling, draw, probabilities
from tests.oracles import sampling as oracle

# Whole numbers of nats: equals are common, and no sum lies by rounding alone on the other side of top-p.
SCORES = st.lists(st.integers(-6, 0), min_size=1, max_size=12)


@given(
    SCORES,
    st.sampled_from([0.5, 1.0, 2.0]),
    st.none() | st.integers(1, 14),
    st.none() | st.sampled_from([0.1234, 0.5678, 0.9123, 0.99877]),
)
def test_temperature_top_k_and_top_p_agree_with_lists(scores, temperature, top_k, top_p):
    log_p = np.array(scores, np.float64) - np.log(np.exp(scores).sum())
    found = probabilities(log_p, Sampling(temperature, top_k, top_p))
    want = oracle.probabilities(log_p.tolist(), temperature, top_k, top_p)
    assert set(np.flatnonzero(found)) == set(want)
    np.testing.assert_allclose([found[token] for token in want], list(want.values()), rtol=1e-12)


def test_temperature_zero_takes_the_likeliest_and_of_equals_the_first():
    assert probabilities(np.log([0.2, 0.4, 0.4]), Sampling(temperature=0)).tolist() == [0, 1, 0]


@pytest.mark.parametrize("temperature", [1e-320, 1e-9])
def test_a_temperature_near_zero_takes_the_likeliest(temperature):
    found = probabilities(np.log([0.2, 0.3, 0.5]), Sampling(temperature, top_k=2))
    assert found.tolist() == [0, 0, 1]


def test_tokens_that_are_impossible_are_never_drawn():
    log_p = np.array([-np.inf, np.log(0.5), -np.inf, np.log(0.5), -np.inf])
    drawn = {draw(probabilities(log_p, Sampling(temperature=3)), np.random.default_rng(seed)) for seed in range(40)}
    assert drawn == {1, 3}


def test_tokens_are_drawn_as_often_as_they_are_likely():
    random = np.random.default_rng(0)
    counts = np.bincount([draw(np.array([0.1, 0.0, 0.6, 0.3]), random) for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, [0.1, 0, 0.6, 0.3], atol=0.03)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"temperature": 0.0, "top_k": 3}, "--top-k and --top-p"),
    ],
)
def test_numbers_without_a_meaning_are_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        validated(GenerationRequest, settings)
