"""Sums over tokens, and the tokens won and lost most."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.comparison.tally import PairedTokens, Tally, largest, position_range, range_bounds
from stages.evaluation.figures.intervals import Bootstrap
from tests.oracles import comparison as oracle

TOKEN = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9))
"""Unit, group, and twice the NLL of A and B."""


@given(st.lists(TOKEN, min_size=1, max_size=40))
def test_groups_are_summed(tokens):
    units, groups, *nll = zip(*sorted(tokens), strict=True)
    nll_a, nll_b = (np.array(one) / 2 for one in nll)
    tally = Tally.of(PairedTokens(np.array(units), nll_a, nll_b), 6, np.array(groups), 5)
    want = oracle.mean_differences(units, groups, nll_a, nll_b)
    for number, group in enumerate(tally.groups(Bootstrap(20, 0.9, 0))):
        assert (group is None) == (number not in want)
        if group is not None:
            tokens, difference, won, lost = want[number]
            assert (group.tokens, group.won, group.lost) == (tokens, won, lost)
            assert group.difference == pytest.approx(difference, abs=1e-12)
            assert group.nll_b == pytest.approx(np.mean([b for b, g in zip(nll_b, groups, strict=True) if g == number]))
    for unit in range(6):
        inside = [b - a for a, b, u in zip(nll_a, nll_b, units, strict=True) if u == unit]
        assert tally.totals[unit].sum() == pytest.approx(sum(inside))
        assert tally.sums[0, unit].sum() == len(inside)


def test_units_without_tokens_are_not_drawn():
    """Two documents of one token each between empty ones: the mean of a resample is -1, 0 or 1."""
    pairs = PairedTokens(np.array([20, 40]), np.array([1.0, 1.0]), np.array([0.0, 2.0]))
    (group,) = Tally.of(pairs, 50, np.zeros(2, np.int64), 1).groups(Bootstrap(1000, 0.95, 0))
    assert group is not None and group.interval == (-1.0, 1.0)


@given(st.integers(0, 10**9))
def test_a_position_lies_in_its_range(position):
    number = int(position_range(np.array([position]))[0])
    start, stop = range_bounds(number)
    assert start <= position < stop


def test_ranges_double():
    assert [range_bounds(number) for number in range(4)] == [(0, 16), (16, 32), (32, 64), (64, 128)]
    assert position_range(np.array([0, 15, 16, 31, 32, 63, 64, 1 << 40])).tolist() == [0, 0, 1, 1, 2, 2, 3, 37]


@given(st.lists(st.integers(-3, 6), max_size=60), st.integers(0, 5))
def test_the_largest_above_zero_are_found_the_first_of_equals(values, most):
    above = [row for row, value in enumerate(values) if value > 0]
    assert largest(np.array(values, float), most).tolist() == sorted(above, key=lambda row: (-values[row], row))[:most]
