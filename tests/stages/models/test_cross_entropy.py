import pytest
import torch
import torch.nn.functional as F

from stages.models import cross_entropy
from stages.models.cross_entropy import MemoryTerms, linear_cross_entropy, linear_log_prob


@pytest.fixture(params=[1, 7, 1000])
def problem(request, monkeypatch):
    """Hidden states, weights and targets, worked through in blocks of 16 tokens at the least."""
    monkeypatch.setitem(cross_entropy.BLOCK_SCORES, "cpu", 16 * 11)
    generator = torch.Generator().manual_seed(request.param)
    n = request.param
    hidden = torch.randn(n, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    return hidden, weight, torch.randint(11, (n,), generator=generator)


def scores_of(hidden, weight, cap):
    scores = hidden @ weight.T
    return scores if cap is None else cap * torch.tanh(scores / cap)


CAPS = pytest.mark.parametrize("cap", [None, 2.0])


@CAPS
def test_loss_and_gradients_are_those_of_separate_operations(problem, cap):
    hidden, weight, targets = problem
    loss = linear_cross_entropy(hidden, weight, targets, cap=cap)
    got = torch.autograd.grad(3 * loss, (hidden, weight))
    expected = F.cross_entropy(scores_of(hidden, weight, cap), targets, reduction="sum")
    want = torch.autograd.grad(3 * expected, (hidden, weight))
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


def test_gradient_flows_to_whichever_argument_asks(problem):
    hidden, weight, targets = problem
    for wanted, other in ((hidden, weight), (weight, hidden)):
        arguments = (hidden, weight.detach()) if wanted is hidden else (hidden.detach(), weight)
        (got,) = torch.autograd.grad(linear_cross_entropy(*arguments, targets), wanted)
        loss = F.cross_entropy(hidden @ weight.T, targets, reduction="sum")
        torch.testing.assert_close(got, torch.autograd.grad(loss, wanted)[0])
        assert other.grad is None


@CAPS
def test_log_prob_and_normalizer(problem, cap):
    hidden, weight, targets = problem
    with torch.no_grad():
        log_prob, log_z = linear_log_prob(hidden, weight, targets, cap)
        scores = scores_of(hidden, weight, cap)
    torch.testing.assert_close(log_z, scores.logsumexp(1))
    torch.testing.assert_close(log_prob, -F.cross_entropy(scores, targets, reduction="none"))


def test_no_tokens_no_loss():
    weight = torch.zeros(3, 2, requires_grad=True)
    loss = linear_cross_entropy(torch.zeros(0, 2), weight, torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert loss == 0 and weight.grad.count_nonzero() == 0


def test_a_target_of_no_probability_has_a_finite_loss():
    hidden = torch.tensor([[300.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]])
    loss = linear_cross_entropy(hidden, weight, torch.tensor([1]))
    assert loss.item() == 600.0
    loss.backward()
    assert hidden.grad.item() == 2.0


def memory_beside(n):
    """A memory without the target, an empty one, one far ahead of the vocabulary, one far behind,
    others at random.
    """
    generator = torch.Generator().manual_seed(n)
    within, target, total = (
        torch.randn(n, dtype=torch.float64, generator=generator) for _ in range(3)
    )
    total = torch.logaddexp(total, target)
    target[::5] = -torch.inf
    total[::10] = -torch.inf
    far = torch.tensor([0.0, 300.0, -300.0], dtype=torch.float64).repeat(n)[:n]
    return MemoryTerms(
        *(part.requires_grad_() for part in (-within.abs(), target + far, total + far))
    )


@CAPS
def test_a_joint_softmax_is_one_softmax_over_vocabulary_and_memory(problem, cap):
    hidden, weight, targets = problem
    beside = MemoryTerms(*(part.detach().requires_grad_() for part in memory_beside(len(targets))))
    inputs = (hidden, weight, *beside)
    loss = linear_cross_entropy(hidden, weight, targets, beside, cap)
    scores = scores_of(hidden, weight, cap)
    own = scores.gather(1, targets[:, None]).squeeze(1) + beside.within
    log_p = torch.logaddexp(own, beside.target) - torch.logaddexp(scores.logsumexp(1), beside.total)
    torch.testing.assert_close(loss, -log_p.sum(), rtol=1e-12, atol=0)
    got = torch.autograd.grad(3 * loss, inputs)
    want = torch.autograd.grad(-3 * log_p.sum(), inputs)
    torch.testing.assert_close(
        got, tuple(grad.nan_to_num() for grad in want), rtol=1e-9, atol=1e-11
    )


def test_an_empty_memory_changes_nothing(problem):
    hidden, weight, targets = problem
    nothing = torch.full((len(targets),), -torch.inf, dtype=torch.float64)
    joint = linear_cross_entropy(
        hidden, weight, targets, MemoryTerms(torch.zeros_like(nothing), nothing, nothing)
    )
    plain = linear_cross_entropy(hidden, weight, targets)
    torch.testing.assert_close(joint, plain, rtol=1e-14, atol=0)
    assert torch.equal(torch.autograd.grad(joint, hidden)[0], torch.autograd.grad(plain, hidden)[0])


@CAPS
def test_gradients_of_log_prob_and_normalizer(problem, cap):
    hidden, weight, targets = problem
    generator = torch.Generator().manual_seed(0)
    by_log_prob, by_log_z = torch.randn(2, len(targets), dtype=torch.float64, generator=generator)
    log_prob, log_z = linear_log_prob(hidden, weight, targets, cap)
    got = torch.autograd.grad((log_prob * by_log_prob + log_z * by_log_z).sum(), (hidden, weight))
    scores = scores_of(hidden, weight, cap)
    naive = (
        -F.cross_entropy(scores, targets, reduction="none") * by_log_prob
        + scores.logsumexp(1) * by_log_z
    )
    torch.testing.assert_close(
        got, torch.autograd.grad(naive.sum(), (hidden, weight)), rtol=1e-10, atol=1e-12
    )
