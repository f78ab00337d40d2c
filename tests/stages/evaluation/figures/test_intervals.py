"""Intervals of means against slow loops and against all resamples there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluation.figures import intervals
from stages.evaluation.figures.intervals import Bootstrap
from stages.metrics import FEWEST_UNITS
from tests.builders.limits import limit
from tests.oracles import comparison as oracle

UNITS = st.integers(1, 6)


@pytest.fixture
def of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of units so few that all resamples can be written down."""
    limit(monkeypatch, min_units=2)


@given(
    st.data(), UNITS, st.integers(1, 3), st.integers(1, 40), st.integers(0, 5), st.integers(1, 50)
)
def test_means_are_those_of_the_same_draws_one_by_one(data, units, columns, samples, seed, at_once):
    values = st.lists(st.integers(-8, 8), min_size=units * columns, max_size=units * columns)
    totals = np.array(data.draw(values), float).reshape(units, columns)
    weights = np.abs(np.array(data.draw(values), float)).reshape(units, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "DRAWS_AT_ONCE", at_once)
        means = Bootstrap(samples, 0.9, seed).resampled_means(totals, weights)
    for column in range(columns):
        want = oracle.resampled_means(totals[:, column], weights[:, column], samples, seed)
        np.testing.assert_allclose(means[:, column], want, rtol=1e-12)


@pytest.mark.usefixtures("of_any_number")
def test_the_interval_is_that_of_all_resamples_there_are():
    totals, weights = [0.0, -1.5, -2.5, 3.0, 0.25], [3.0, 1.0, 4.0, 2.0, 3.0]
    every = oracle.all_resampled_means(totals, weights)
    want = np.quantile(every, [0.1, 0.9])
    ((low, high),) = Bootstrap(200_000, 0.8, 0).intervals(
        np.array([totals]).T, np.array([weights]).T
    )
    assert (low, high) == pytest.approx(want, abs=0.01)


@pytest.mark.usefixtures("of_any_number")
def test_the_interval_of_three_documents():
    """Sums 0, -1.5, -2.5 over 3 tokens each: of 27 resamples one is all 0, one all -2.5, each with
    3.7%.
    """
    ((low, high),) = Bootstrap(10_000, 0.95, 0).intervals(
        np.array([[0.0], [-1.5], [-2.5]]), np.full((3, 1), 3.0)
    )
    assert (low, high) == (pytest.approx(-7.5 / 9), 0.0)


def test_the_interval_covers_what_is_true():
    """Of 300 samples of 40 documents the 90% interval holds the true mean, -0.2, about 270 times."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        weights = random.integers(50, 150, 40).astype(float)
        totals = weights * (-0.2 + random.normal(0, 0.5, 40))
        ((low, high),) = Bootstrap(400, 0.9, 0).intervals(totals[:, None], weights[:, None])
        held += low <= -0.2 <= high
    assert 250 <= held <= 288


@pytest.mark.parametrize("units", [1, 2, 5, 6])
def test_few_units_have_no_interval(units):
    weights = np.concatenate([np.full((units, 1), 2.0), np.zeros((3, 1))])
    totals = np.random.default_rng(0).normal(size=weights.shape) * weights
    (interval,) = Bootstrap(10, 0.95, 0).intervals(totals, weights)
    assert (interval is None) == (units < FEWEST_UNITS)


@pytest.mark.usefixtures("of_any_number")
def test_resamples_without_weight_are_left_out():
    totals, weights = np.array([[1.0], [3.0], [0.0], [0.0]]), np.array([[1.0], [1.0], [0.0], [0.0]])
    ((low, high),) = Bootstrap(2000, 0.95, 0).intervals(totals, weights)
    assert (low, high) == (1.0, 3.0)
    seed = next(
        s
        for s in range(100)
        if set(np.random.default_rng(s).integers(0, 4, (1, 4)).ravel()) <= {2, 3}
    )
    assert Bootstrap(1, 0.95, seed).intervals(totals, weights) == [None]
