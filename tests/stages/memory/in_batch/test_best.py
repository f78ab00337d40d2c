"""Log-sums over the best keys alone, against naive loops in float64, and their gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch import log_sums
from stages.memory.in_batch.log_sums import best_log_sums, in_batch_log_sums
from stages.memory.in_batch.visible import Visible, others

D, SCALE = 3, 0.7


def drawn(seed: int, n: int, own: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys, targets and values of n tokens in sentences of `own`, each of which sees the
    others.
    """
    random = torch.Generator().manual_seed(seed)
    queries, keys = (torch.randn(n, D, generator=random, dtype=torch.float64) for _ in range(2))
    targets, values = (torch.randint(4, (n,), generator=random) for _ in range(2))
    return queries, keys, targets, values


def hidden_from(n: int, own: int) -> Visible:
    place = torch.arange(n)
    start = place - place % own
    return others(start, (start + own).clamp(max=n), place, n, local=False)


@settings(max_examples=30)
@given(seed=st.integers(0, 99), n=st.integers(1, 14), own=st.integers(1, 5), k=st.integers(1, 20))
def test_sums_are_those_of_loops(seed: int, n: int, own: int, k: int) -> None:
    queries, keys, targets, values = drawn(seed, n, own)
    found = best_log_sums(queries, keys, targets, values, hidden_from(n, own), SCALE, k)
    for i in range(n):
        scores = [
            (SCALE * float(queries[i] @ keys[j]), int(values[j]))
            for j in range(n)
            if i // own != j // own
        ]
        chosen = sorted(scores, reverse=True)[:k]
        for sums, wanted in zip(
            found, ([s for s, v in chosen if v == targets[i]], [s for s, _ in chosen]), strict=True
        ):
            total = math.fsum(map(math.exp, wanted))
            assert float(sums[i]) == pytest.approx(
                math.log(total) if total else -math.inf, rel=1e-10
            )


def test_with_room_for_all_keys_nothing_is_left_out() -> None:
    arguments = drawn(1, 12, 4)
    visible = hidden_from(12, 4)
    for one, other in zip(
        best_log_sums(*arguments, visible, SCALE, 99),
        in_batch_log_sums(*arguments, visible, SCALE),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, visible = drawn(2, 11, 3), hidden_from(11, 3)
    whole = best_log_sums(*arguments, visible, SCALE, 4)
    monkeypatch.setattr(log_sums, "CELLS_AT_ONCE", 30)
    for one, other in zip(best_log_sums(*arguments, visible, SCALE, 4), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_gradients_flow_into_the_chosen_keys_alone() -> None:
    queries, keys, targets, values = drawn(3, 9, 3)
    visible = hidden_from(9, 3)

    def loss(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        target, total = best_log_sums(queries, keys, targets, values, visible, SCALE, 2)
        return (total - target.where(target > -torch.inf, torch.zeros_like(target))).sum()

    both = queries.requires_grad_(), keys.requires_grad_()
    assert torch.autograd.gradcheck(loss, both)
    total = best_log_sums(queries, keys, targets, values, visible, SCALE, 1)[1]
    gradient = torch.autograd.grad(total.sum(), keys)[0]
    scores = (queries @ keys.T).detach().masked_fill(visible.hides(slice(0, 9)), -torch.inf)
    chosen = set(scores.topk(1).indices.flatten().tolist())
    assert {i for i in range(9) if gradient[i].any()} == chosen and len(chosen) < 9


def test_a_query_that_sees_nothing_has_no_gradient() -> None:
    queries = torch.ones(2, D, dtype=torch.float64, requires_grad=True)
    arguments = torch.zeros(2, D, dtype=torch.float64), torch.tensor([0, 1]), torch.tensor([0, 0])
    target, total = best_log_sums(queries, *arguments, hidden_from(2, 2), SCALE, 1)
    assert np.isneginf(target.detach().numpy()).all() and np.isneginf(total.detach().numpy()).all()
    torch.logaddexp(torch.zeros(2, dtype=torch.float64), total).sum().backward()
    assert queries.grad is not None and not queries.grad.isnan().any() and not queries.grad.any()
