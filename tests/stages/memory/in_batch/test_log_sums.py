import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch import blocks as cutting
from stages.memory.in_batch.log_sums import in_batch_log_sums
from stages.memory.in_batch.visible import Visible, earlier, others
from tests.builders.in_batch import KINDS, batch, both_ways, own_memory, segments
from tests.builders.visible import visibles
from tests.oracles import in_batch as oracle

BLOCKS = [(1, 1), (3, 5), (4, 2), (256, 1024)]


@pytest.fixture(params=BLOCKS, ids=str)
def blocks(request, monkeypatch):
    """Sizes of blocks below, across and above those of the segments."""
    of_size(monkeypatch, *request.param)


def of_size(monkeypatch, rows, keys):
    monkeypatch.setitem(cutting.ROWS_AT_ONCE, "cpu", rows)
    monkeypatch.setitem(cutting.KEYS_AT_ONCE, "cpu", keys)
    monkeypatch.setitem(cutting.SQUARE_AT_ONCE, "cpu", rows)


@given(visibles(), st.integers(1, 4), st.sampled_from(BLOCKS), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_values_are_those_of_the_slow_oracle(case, vocabulary, size, seed):
    visible, keys = case
    given_batch = batch(len(visible), keys, seed=seed, vocabulary=vocabulary)
    with pytest.MonkeyPatch.context() as monkeypatch:
        of_size(monkeypatch, *size)
        got = in_batch_log_sums(*given_batch, visible, 0.7)
    for one, want in zip(got, oracle.log_sums(*given_batch, visible, 0.7), strict=True):
        assert one.tolist() == pytest.approx(want, abs=1e-12)


@given(
    visibles(),
    st.integers(1, 4),
    st.sampled_from(BLOCKS),
    st.sampled_from([torch.float64, torch.float32]),
)
@settings(deadline=None, max_examples=50)
def test_gradients_are_those_of_whole_matrices(case, vocabulary, size, dtype):
    visible, keys = case
    given_batch = batch(len(visible), keys, vocabulary=vocabulary)
    want = both_ways(oracle.dense_log_sums, *given_batch, visible)
    queries, keys, *ids = given_batch
    with pytest.MonkeyPatch.context() as monkeypatch:
        of_size(monkeypatch, *size)
        got = both_ways(in_batch_log_sums, queries.to(dtype), keys.to(dtype), *ids, visible)
    for one, right in zip(got, want, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(
            one.double(), right, rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-5
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[1], [4, 4, 4], [5, 1, 3, 2]], ids=str)
def test_a_batch_that_is_its_own_memory(kind, lengths, blocks):
    visible = segments(lengths, kind)
    hidden, _, ids, _ = batch(sum(lengths), 1)
    want = own_memory(oracle.dense_log_sums, hidden, ids, visible)
    for one, right in zip(own_memory(in_batch_log_sums, hidden, ids, visible), want, strict=True):
        torch.testing.assert_close(one, right)


@given(
    visibles(),
    st.integers(1, 4),
    st.sampled_from(BLOCKS),
    st.sampled_from([torch.float64, torch.float32]),
)
@settings(deadline=None, max_examples=50)
def test_any_part_of_its_own_memory(case, vocabulary, size, dtype):
    visible, _ = case
    hidden, _, ids, _ = batch(len(visible), 1, vocabulary=vocabulary)
    with pytest.MonkeyPatch.context() as monkeypatch:
        of_size(monkeypatch, *size)
        got = own_memory(in_batch_log_sums, hidden.to(dtype), ids, visible)
    for one, right in zip(
        got, own_memory(oracle.dense_log_sums, hidden, ids, visible), strict=True
    ):
        torch.testing.assert_close(
            one.double(), right, rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-5
        )


@pytest.mark.parametrize("kind", ["long", "others+local"])
@pytest.mark.parametrize("same", [True, False])
def test_gradcheck(kind, same, monkeypatch):
    of_size(monkeypatch, 2, 3)
    visible = segments([2, 1, 3], kind)
    _, _, ids, _ = batch(6, 1, vocabulary=2)
    hidden = torch.randn(
        6, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True
    )

    def finite(queries, keys=None):
        keys = queries if keys is None else keys
        return tuple(
            mass.nan_to_num(neginf=0.0)
            for mass in in_batch_log_sums(queries, keys, ids, ids, visible, 1.3)
        )

    assert torch.autograd.gradcheck(
        finite, (hidden,) if same else (hidden, hidden.detach().flip(0).requires_grad_())
    )


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_sees_itself_or_its_own_future(kind, blocks):
    visible = segments([4, 3, 2], kind)
    queries, keys, targets, values = batch(9, 9)
    before = in_batch_log_sums(queries, keys, targets, values, visible, 1.0)
    seen = ~visible.hides(slice(0, 9))
    for j in range(9):
        changed = keys.clone()
        changed[j] += 3
        other = values.clone()
        other[j] = 77
        for result in (
            in_batch_log_sums(queries, changed, targets, values, visible, 1.0),
            in_batch_log_sums(queries, keys, targets, other, visible, 1.0),
        ):
            for one, was in zip(result, before, strict=True):
                assert torch.equal(one[~seen[:, j]], was[~seen[:, j]])
        moved = in_batch_log_sums(queries, changed, targets, values, visible, 1.0)[1]
        assert (moved != before[1])[seen[:, j]].all()


def test_a_key_that_is_not_visible_gets_no_gradient_at_all(blocks):
    visible = Visible(*(torch.tensor([bound] * 3) for bound in (1, 5, 2, 4)))
    *_, grad_keys = both_ways(in_batch_log_sums, *batch(3, 6, vocabulary=1), visible)
    assert grad_keys.ne(0).any(1).tolist() == [False, True, False, False, True, False]


def test_rows_without_memory_are_minus_infinity_with_zero_gradient(blocks):
    visible = segments([3, 3], "local")
    queries, keys, targets, values = batch(6, 6, vocabulary=1)
    queries.requires_grad_()
    target, total = in_batch_log_sums(queries, keys, targets, values, visible, 1.0)
    assert (
        total.isneginf().tolist()
        == target.isneginf().tolist()
        == [True, False, False, True, False, False]
    )
    (grad,) = torch.autograd.grad(
        (target, total), queries, (torch.ones(6), torch.full((6,), torch.nan))
    )
    assert grad[[0, 3]].eq(0).all()


def test_no_visible_cell_at_all(blocks):
    nothing = torch.zeros(4, dtype=torch.int64)
    visible = earlier(nothing, nothing)
    target, total, grad_queries, grad_keys = both_ways(in_batch_log_sums, *batch(4, 5), visible)
    assert target.isneginf().all()
    assert total.isneginf().all()
    assert not grad_queries.any()
    assert not grad_keys.any()


def test_a_target_that_is_absent_takes_no_gradient(blocks):
    visible = segments([4], "long")
    queries, keys, _, values = batch(4, 4)
    queries.requires_grad_()
    target, total = in_batch_log_sums(queries, keys, values + 10, values, visible, 1.0)
    assert target.isneginf().all()
    assert total[1:].isfinite().all()
    (grad,) = torch.autograd.grad(target, queries, torch.zeros(4))
    assert not grad.any()


def test_a_target_far_below_the_best_keeps_its_logarithm(blocks):
    queries = torch.ones(1, 1)
    keys = torch.tensor([[0.0], [-250.0], [-251.0], [2.0]], requires_grad=True)
    visible = earlier(torch.zeros(1, dtype=torch.int64), torch.tensor([4]))
    target, total = in_batch_log_sums(
        queries, keys, torch.tensor([7]), torch.tensor([1, 7, 7, 2]), visible, 1.0
    )
    assert target.item() == pytest.approx(-250 + math.log(1 + math.exp(-1)), rel=1e-6)
    assert total.item() == pytest.approx(2 + math.log(1 + math.exp(-2)), rel=1e-6)
    (grad,) = torch.autograd.grad(target.sum(), keys)
    share = 1 / (1 + math.exp(-1))
    assert grad[:, 0].tolist() == pytest.approx([0, share, 1 - share, 0], abs=1e-5)


def test_large_scores_do_not_overflow(blocks):
    queries, keys = torch.full((2, 1), 100.0), torch.full((3, 1), 100.0)
    ids = torch.zeros(3, dtype=torch.int64)
    visible = earlier(torch.zeros(2, dtype=torch.int64), torch.tensor([1, 3]))
    _, total, grad_queries, _ = both_ways(
        in_batch_log_sums, queries, keys, ids[:2], ids, visible, scale=1.0
    )
    assert total.tolist() == pytest.approx([1e4, 1e4 + math.log(3)])
    assert grad_queries.isfinite().all()


@pytest.mark.parametrize("wanted", ["queries", "keys"])
def test_constants_change_no_gradient_of_the_other(wanted):
    queries, keys, *ids = batch(5, 5, vocabulary=1)
    (queries if wanted == "queries" else keys).requires_grad_()

    def gradient(function):
        mass = function(queries, keys, *ids, segments([5], "long"), 0.7)[1]
        return torch.autograd.grad(mass[1:].sum(), queries if wanted == "queries" else keys)[0]

    torch.testing.assert_close(gradient(in_batch_log_sums), gradient(oracle.dense_log_sums))


def test_constants_behind_and_in_front_of_the_batch(blocks):
    queries, keys, targets, values = batch(4, 10)
    visible = others(
        *(torch.tensor([bound] * 4) for bound in (3, 7)), torch.arange(3, 7), 10, local=True
    )
    memory = torch.cat([keys[:3], queries, keys[7:]])
    values[3:7] = targets
    want = both_ways(oracle.dense_log_sums, queries, memory, targets, values, visible)
    for one, right in zip(
        both_ways(in_batch_log_sums, queries, memory, targets, values, visible), want, strict=True
    ):
        torch.testing.assert_close(one, right)


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_products_are_close_to_fp32(kind, monkeypatch):
    of_size(monkeypatch, 16, 32)
    visible = segments([40, 30, 50], kind)
    queries, _, ids, _ = batch(120, 1, width=16, vocabulary=6, dtype=torch.float32)
    exact = both_ways(in_batch_log_sums, queries, queries, ids, ids, visible, 0.25)
    exact += own_memory(in_batch_log_sums, queries, ids, visible)[2:]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = both_ways(in_batch_log_sums, queries, queries, ids, ids, visible, 0.25)
        half += own_memory(in_batch_log_sums, queries, ids, visible)[2:]
    assert {one.dtype for one in half} == {torch.float32}
    for one, right in zip(half[:2], exact[:2], strict=True):
        torch.testing.assert_close(one, right, rtol=0.01, atol=0.03)
    for one, right in zip(half[2:], exact[2:], strict=True):
        assert 0 < (one - right).norm() < 0.01 * right.norm()


def test_float64_stays_float64_under_autocast():
    visible = segments([6], "long")
    given_batch = batch(6, 6)
    want = in_batch_log_sums(*given_batch, visible, 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = in_batch_log_sums(*given_batch, visible, 1.0)
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))


def test_bf16_queries_give_bf16_gradients_and_float32_masses():
    visible = segments([6], "long")
    queries, keys, targets, values = batch(6, 6, vocabulary=1)
    got = both_ways(
        in_batch_log_sums, queries.bfloat16(), keys.bfloat16(), targets, values, visible
    )
    assert [one.dtype for one in got] == [torch.float32] * 2 + [torch.bfloat16] * 2


@pytest.mark.parametrize("worst", [torch.inf, -torch.inf, torch.nan])
def test_a_key_that_is_not_finite_changes_no_mass_where_it_is_not_visible(worst, blocks):
    visible = Visible(*(torch.tensor([bound] * 3) for bound in (1, 5, 2, 4)))
    queries, keys, targets, values = batch(3, 6, vocabulary=1)
    want = in_batch_log_sums(queries, keys, targets, values, visible, 0.7)
    keys[[0, 2, 3, 5]] = worst
    for one, right in zip(
        in_batch_log_sums(queries, keys, targets, values, visible, 0.7), want, strict=True
    ):
        assert torch.equal(one, right)


def test_a_score_that_overflows_changes_nothing_where_it_is_not_visible(blocks):
    visible = Visible(*(torch.tensor([bound] * 3) for bound in (1, 5, 2, 4)))
    queries, keys, *ids = batch(3, 6, vocabulary=1, dtype=torch.float32)
    queries[:, 0], keys[:, 0] = 1e30, 0
    want = both_ways(in_batch_log_sums, queries, keys, *ids, visible)
    keys[2, 0] = 1e30
    got = both_ways(in_batch_log_sums, queries, keys, *ids, visible)
    for one, right in zip(got, want, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, right)
