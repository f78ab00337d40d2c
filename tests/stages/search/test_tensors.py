import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.search import ranking
from stages.search.ranking import MISSING
from stages.search.tensors import (
    RESERVED,
    AsyncResults,
    memory_budget,
    moved,
    packed,
    rows_of,
    scores_of,
    smallest,
)


@given(
    seed=st.integers(0, 999),
    keys=st.integers(1, 300),
    count=st.integers(1, 320),
    distinct=st.sampled_from([3, 50, 1 << 30]),
    missing=st.floats(0, 1),
)
def test_the_smallest_scores_are_those_of_a_sort(
    seed: int, keys: int, count: int, distinct: int, missing: float
) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(distinct, size=(4, keys)).astype(np.float32)
    scores[random.random(scores.shape) < missing] = np.inf
    found, columns = smallest(torch.from_numpy(scores), count)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(scores, axis=1)[:, :count])
    np.testing.assert_array_equal(np.take_along_axis(scores, columns.numpy(), axis=1), found)
    assert all(len(set(row)) == min(count, keys) for row in columns.tolist())


def test_few_of_many_are_found_without_ranking_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[int] = []
    topk = torch.Tensor.topk

    def counted(scores: torch.Tensor, *others: int, **more: bool) -> object:
        ranked.append(scores.shape[1])
        return topk(scores, *others, **more)

    monkeypatch.setattr(torch.Tensor, "topk", counted)
    smallest(torch.rand(2, 10_000), 4)
    assert sum(ranked) < 500


@pytest.mark.parametrize("rows", [9, 1 << 32])
def test_pairs_are_those_of_the_cpu(rows: int) -> None:
    scores = np.array([-3.5, -0.0, 0.0, 1e-40, 2.0, np.inf], np.float32)
    ids = np.array([3, 2**31 + 5, 0, 7, 8, 5]) % rows
    pairs = packed(torch.from_numpy(scores), torch.from_numpy(ids))
    np.testing.assert_array_equal(pairs, ranking.packed(scores, ids))
    want_scores, want_rows = ranking.unpacked(pairs.numpy())
    np.testing.assert_array_equal(scores_of(pairs), want_scores)
    np.testing.assert_array_equal(rows_of(pairs, rows), want_rows)
    assert rows_of(pairs, rows).dtype == (torch.int32 if rows == 9 else torch.int64)


def test_arrays_that_cannot_be_written_or_are_no_block_are_moved() -> None:
    array = np.arange(12.0).reshape(3, 4)
    array.flags.writeable = False
    for one in (array, array[:, ::2], array.T):
        np.testing.assert_array_equal(moved(one, "cpu"), one)


def test_a_score_that_is_no_number_is_that_of_a_missing_key() -> None:
    pairs = packed(torch.tensor([torch.nan, -torch.nan]), torch.tensor([3, 4]))
    assert pairs.tolist() == [ranking.MISSING] * 2


@pytest.mark.parametrize("gigabytes", [2, 4, 8, 16, 80, 140])
def test_what_a_gpu_holds_and_computes_at_a_time_fits_what_is_free(
    gigabytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = gigabytes << 30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
    budget = memory_budget("cuda")
    # of scores, columns of the best of a third of them, twice; two pieces in float32; pairs with
    # their differences
    assert (
        budget.resident
        + RESERVED
        + (4 + 16 / 3) * budget.scores
        + 8 * budget.piece
        + 8 * budget.numbers
        < free
    )
    assert min(budget.scores, budget.numbers, budget.piece) > 1 << 20


def test_parts_of_a_result_are_put_where_they_belong() -> None:
    scores, rows = torch.rand(5, 3), torch.randint(100, (5, 3))
    pairs = packed(scores, rows)
    pairs[4, 2] = MISSING
    with AsyncResults(5, 3, 100, "cpu") as found:
        found.put(slice(3, 5), pairs[3:])
        found.put(slice(0, 2), pairs[[0, 2]], among=np.array([0, 2, 4]))
        found.put(slice(1, 2), pairs[1:2])
        found.wait()
    assert (found.scores.dtype, found.rows.dtype) == (np.float32, np.int64)
    scores[4, 2], rows[4, 2] = torch.inf, -1
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(found.rows, rows)
