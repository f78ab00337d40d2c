"""Breakdowns of a split, among them paragraphs that were read before."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluation.figures import breakdown
from stages.evaluation.figures.breakdown import (
    BOUNDS,
    Frequencies,
    bucket_of,
    buckets,
    chance_accuracy,
    find_accuracy,
    type_counts,
)
from stages.evaluation.figures.texts import in_paragraphs
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.source import Needs
from stages.text.tokens import TokenSplit
from tests.oracles.frequency import RANGES, place


def row(*neighbors: int, searched: float = 1.0) -> MemoryRow:
    """Readings of so many neighbours each, or of the recent past alone where there are none."""
    reading = SimpleNamespace(searched=searched)
    return MemoryRow(
        tuple(SimpleNamespace(needs=Needs(neighbors=n), reading=reading) for n in neighbors)
    )


@pytest.mark.parametrize(
    ("k", "at"),
    [
        (1, (1,)),
        (6, (1, 6)),
        (64, (1, 8, 64)),
        (1000, (1, 8, 64, 1000)),
        (1024, (1, 8, 64, 1024)),
        (2048, (1, 8, 64, 1024, 2048)),
    ],
)
def test_accuracy_is_told_at_the_numbers_of_the_paper_and_at_all_that_are_read(
    k: int, at: tuple[int, ...]
) -> None:
    assert find_accuracy([row(k)]) == (0, at)


def test_it_is_that_of_the_first_row_whose_first_reading_has_neighbours() -> None:
    assert find_accuracy([row(0, 8), row(0), row(8)]) == (2, (1, 8))
    assert find_accuracy([row(8, 0), row(4)]) == (0, (1, 8))


def test_without_neighbours_there_is_none() -> None:
    assert find_accuracy([row(0)]) == find_accuracy([]) == (0, ())


def test_where_searches_are_left_out_there_is_none() -> None:
    assert find_accuracy([row(8, searched=0.5)]) == (0, ())


def test_tokens_of_paragraphs_that_train_has_are_marked():
    big = 2**64 - 1
    ends = np.array([3, 4, 6], np.int64)
    split = TokenSplit(None, None, ends, np.array([big, 8, 7], np.uint64))
    repeated = in_paragraphs(split, np.array([7, big], np.uint64))
    assert repeated.tolist() == [True, True, True, False, True, True]


EDGES = [edge + step for edge in (0, 10, 100, 1_000, 10_000) for step in (0, 1)]


@given(st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 20_000)), min_size=1))
def test_every_count_has_its_bucket(counts: list[int]) -> None:
    assert bucket_of(np.array(counts)).tolist() == [place(count) for count in counts]


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_types_are_counted_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch, at_once: int, dtype: type
) -> None:
    monkeypatch.setattr(breakdown, "IDS_AT_ONCE", at_once)
    assert type_counts(np.array([3, 0, 3, 1, 3, 0, 5], dtype), 7).tolist() == [2, 1, 0, 3, 0, 1, 0]
    assert type_counts(np.array([], dtype), 2).tolist() == [0, 0]


def test_buckets_without_tokens_are_left_out() -> None:
    assert buckets([7, 0, 0, 0, 2, 1]) == [
        (0, {"more_than": 10_000, "at_most": None, "tokens": 7}),
        (4, {"more_than": 0, "at_most": 10, "tokens": 2}),
        (5, {"more_than": None, "at_most": 0, "tokens": 1}),
    ]
    assert len(RANGES) == len(BOUNDS) + 1


def test_values_are_summed_in_float64() -> None:
    types = Frequencies(np.array([0, 5, 5]), "train", "tokens/0123456789ab")
    targets = np.array([0, 1, 2, 1])
    assert types.tokens(targets) == [1, 0, 0, 0, 0, 3]
    values = np.array([1.0, 1.0, 2.0**30, 2.0**30 + 128], np.float32)
    assert types.sums(targets, values) == [1.0, 0, 0, 0, 0, 2.0**31 + 129]
    assert types.sums(targets[:0], values[:0]) == [0.0] * 6


def test_it_is_the_share_of_draws_that_are_right():
    random = np.random.default_rng(0)
    values, targets = random.integers(0, 4, 50), random.integers(0, 5, 20)
    drawn = values[random.integers(0, len(values), (20_000, len(targets), 3))]
    want = (drawn == targets[None, :, None]).any(-1).mean()
    count = lambda ids: np.bincount(ids, minlength=5)  # noqa: E731
    assert chance_accuracy(count(values), count(targets), (3,))["3"] == pytest.approx(
        want, abs=0.005
    )


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 1000))
def test_more_rows_are_right_more_often_and_a_single_type_always(counts: list[int], k: int):
    stored = np.array(counts)
    few, more = chance_accuracy(stored, stored, (k, k + 1)).values()
    assert 0 < few <= more <= 1
    assert chance_accuracy(np.array([7]), np.array([3]), (k,)) == {str(k): 1.0}
