"""Cross entropy with soft labels, beside the dense one and its gradients by autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.soft_labels import SoftLabels, entropy_of_shares, moved_scores

V, D = 12, 8
VOCABULARIES = {
    "full": {},
    "untied": {"tied": False},
    "adaptive": {"cutoffs": (3, 7), "factor": 2},
    "adaptive, untied": {"cutoffs": (3, 7), "factor": 2, "tied": False},
    "bias": {"score_bias": True, "score_scale": 0.5},
}
LABELS = SoftLabels(
    torch.tensor([0, 0, 1, 3, 3, 4, 5]),
    torch.tensor([1, 9, 3, 4, 8, 0, 5]),
    torch.tensor([0.2, 0.3, 0.5, 0.25, 0.25, 1.0, 0.5]),
)
TARGETS = torch.tensor([0, 3, 5, 8, 11, 2])


def small_model(vocabulary: str) -> LanguageModel:
    sizes = {"vocab_size": V, "width": D, "layers": 1, "heads": 2, "ffn_width": 8}
    torch.manual_seed(0)
    model = LanguageModel(
        TransformerConfig(**sizes, max_positions=5, dropout=0.0, **VOCABULARIES[vocabulary])
    ).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def dense(labels: SoftLabels, targets: torch.Tensor) -> torch.Tensor:
    """The labels as distributions, [N, V]."""
    spread = torch.zeros(len(targets), V, dtype=torch.float64)
    for row, token, share in zip(*(part.tolist() for part in labels), strict=True):
        spread[row, token] += share
        spread[row, targets[row]] -= share
    for row, target in enumerate(targets.tolist()):
        spread[row, target] += 1
    return spread


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_loss_and_gradients_are_those_of_dense_labels(vocabulary: str) -> None:
    model = small_model(vocabulary)
    hidden = torch.randn(6, D, dtype=torch.float64, requires_grad=True)
    learnt = [hidden, *model.vocabulary.parameters()]
    fast = model.soft_loss(hidden, TARGETS, LABELS)
    slow = -(dense(LABELS, TARGETS) * model.vocabulary.log_probs(hidden)).sum(-1).mean()
    torch.testing.assert_close(fast, slow)
    for own, other in zip(
        *(torch.autograd.grad(loss, learnt, allow_unused=True) for loss in (fast, slow)),
        strict=True,
    ):
        torch.testing.assert_close(own, other)


def test_without_shares_it_is_the_loss_of_the_targets() -> None:
    model = small_model("full")
    hidden = torch.randn(6, D, dtype=torch.float64)
    none = LABELS.select(torch.zeros(7, dtype=torch.bool))
    torch.testing.assert_close(model.soft_loss(hidden, TARGETS, none), model.loss(hidden, TARGETS))


shares = st.lists(st.floats(0.01, 1), min_size=V, max_size=V)


@settings(max_examples=30, deadline=None)
@given(shares, st.integers(0, V - 1), st.floats(0.01, 1), st.integers(0, 2**31))
def test_divergence_is_cross_entropy_less_the_entropy_of_the_shares(
    weights: list[float], target: int, alpha: float, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(1, D, generator=random, dtype=torch.float64)
    weight = torch.randn(V, D, generator=random, dtype=torch.float64)
    log_p = (hidden @ weight.T).log_softmax(-1)[0]
    q = torch.tensor(weights, dtype=torch.float64)
    q = q / q.sum()
    labels = SoftLabels(torch.zeros(V, dtype=torch.int64), torch.arange(V), alpha * q)
    moved = moved_scores(hidden, weight, torch.tensor([target]), labels)[0]
    identity = -log_p[target] + moved - alpha * entropy_of_shares(labels, 1)[0]
    divergence = (q * (q.log() - log_p)).sum()
    torch.testing.assert_close(identity, alpha * divergence - (1 - alpha) * log_p[target])
