"""Numbers as a person reads them."""

import pytest

from stages.numbers import (
    bucket_label,
    duration,
    number,
    passes,
    percent,
    size,
    spread_out,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (6670.4, "6,670"),
        (0.00123456, "0.001235"),
        (79.0, "79"),
        (4.31234, "4.312"),
        (103_227_021, "103,227,021"),
        (2.5e12, "2.5e+12"),
        (float("inf"), "inf"),
    ],
)
def test_figures_have_four_digits_and_counts_have_all(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999_960, "1.0 MB"),
        (2500, "2.5 kB"),
        (25.7e9, "25.7 GB"),
        (3e12, "3.0 TB"),
    ],
)
def test_sizes(count: float, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1.52, "1.5 s"), (59.97, "1:00"), (60, "1:00"), (119.6, "2:00"), (3723, "1:02:03")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_shares_and_ranges_of_counts() -> None:
    assert (percent(0.12), percent(0.005)) == ("12%", "0.5%")
    ranges = [(10_000, None), (10, 100), (None, 0)]
    assert [bucket_label(*ends) for ends in ranges] == ["> 10,000", "11-100", "0"]


def test_numbers_far_apart_want_a_logarithm_and_only_positive_ones() -> None:
    assert spread_out([1, 11])
    assert not any(map(spread_out, ([1, 10], [0, 100], [-5, 100], [])))


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0.0456, "0.046 passes"),
        (0.5, "0.5 passes"),
        (1, "1 pass"),
        (1.02, "1 pass"),
        (4.503, "4.5 passes"),
        (7.983, "8 passes"),
        (123.44, "123.4 passes"),
    ],
)
def test_passes_have_one_decimal(count: float, shown: str) -> None:
    assert passes(count) == shown
