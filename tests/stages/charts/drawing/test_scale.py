"""Places on an axis, and round numbers beside it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.drawing.scale import Scale, scale_over

FINITE = st.floats(-1e9, 1e9)
POSITIVE = st.floats(1e-6, 1e9)


@given(st.lists(FINITE, min_size=1), st.integers(2, 12))
def test_a_scale_holds_its_values_and_has_few_rising_ticks_within(values: list[float], most: int) -> None:
    scale = scale_over(values, 300, 10)
    assert all(10 - 1e-6 <= scale(value) <= 300 + 1e-6 for value in values)
    ticks = scale.ticks(most)
    assert len(ticks) <= most and ticks == sorted(set(ticks))
    slack = 1e-6 * (scale.high - scale.low) + 1e-9
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)


@given(st.lists(POSITIVE, min_size=1))
def test_a_logarithmic_scale_puts_equal_factors_at_equal_distances(values: list[float]) -> None:
    scale = scale_over(values, 0, 100, logarithmic=True)
    low, high = scale.low, scale.high
    middle = math.sqrt(low * high)
    assert scale(middle) == pytest.approx(50)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)


def test_ticks_are_round() -> None:
    assert Scale(0.3, 10.2, 0, 1).ticks(6) == [2, 4, 6, 8, 10]
    assert Scale(144, 168, 0, 1).ticks(6) == [145, 150, 155, 160, 165]
    assert Scale(1, 1000, 0, 1, True).ticks(5) == [1, 10, 100, 1000]
    assert Scale(1, 100, 0, 1, True).ticks(8) == [1, 2, 5, 10, 20, 50, 100]
    assert Scale(120, 170, 0, 1, True).ticks(6) == [120, 130, 140, 150, 160, 170]


def test_one_value_alone_stands_in_the_middle() -> None:
    assert scale_over([7.0], 0, 100)(7.0) == pytest.approx(50)
    assert scale_over([7.0], 0, 100, rounded=False)(7.0) == pytest.approx(50)
    assert scale_over([0.0], 0, 100)(0.0) == pytest.approx(50)
