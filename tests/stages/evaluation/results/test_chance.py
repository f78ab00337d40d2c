"""How often rows drawn at random would be right."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluation.results.chance import chance_accuracy


def test_it_is_the_share_of_draws_that_are_right():
    random = np.random.default_rng(0)
    values, targets = random.integers(0, 4, 50), random.integers(0, 5, 20)
    drawn = values[random.integers(0, len(values), (20_000, len(targets), 3))]
    want = (drawn == targets[None, :, None]).any(-1).mean()
    count = lambda ids: np.bincount(ids, minlength=5)  # noqa: E731
    assert chance_accuracy(count(values), count(targets), (3,))["3"] == pytest.approx(want, abs=0.005)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 1000))
def test_more_rows_are_right_more_often_and_a_single_type_always(counts: list[int], k: int):
    stored = np.array(counts)
    few, more = chance_accuracy(stored, stored, (k, k + 1)).values()
    assert 0 < few <= more <= 1
    assert chance_accuracy(np.array([7]), np.array([3]), (k,)) == {str(k): 1.0}
