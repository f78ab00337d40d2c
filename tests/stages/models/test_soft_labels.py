"""Cross entropy with soft labels, beside the dense one in float64 and its gradients by autograd."""

import pytest
import torch

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.soft_labels import SoftLabels, linear_soft_cross_entropy

V, D = 12, 8
VOCABULARIES = {
    "full": {},
    "untied": {"tied": False},
    "adaptive": {"cutoffs": (3, 7), "factor": 2},
    "adaptive, untied": {"cutoffs": (3, 7), "factor": 2, "tied": False},
    "bias": {"score_bias": True, "score_scale": 0.5},
    "cap": {"score_cap": 2.0},
}
POSITIONS = 6
LABELS = SoftLabels(
    torch.tensor([0, 0, 0, 1, 3, 3, 3, 4, 5, 5]),
    torch.tensor([1, 9, 1, 3, 4, 8, 2, 0, 5, 6]),
    torch.tensor([0.2, 0.3, 0.5, 1.0, 0.25, 0.25, 0.5, 1.0, 0.5, 0.2]),
)
"""The third position has none, and the last a sum below 1; the first names a token twice."""


def small_model(vocabulary: str) -> LanguageModel:
    sizes = {"vocab_size": V, "width": D, "layers": 1, "heads": 2, "ffn_width": 8}
    torch.manual_seed(0)
    model = LanguageModel(
        TransformerConfig(**sizes, max_positions=5, dropout=0.0, **VOCABULARIES[vocabulary])
    ).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def dense(labels: SoftLabels) -> torch.Tensor:
    """The labels as shares of all tokens, [N, V]."""
    spread = torch.zeros(POSITIONS, V, dtype=torch.float64)
    for row, token, share in zip(*(part.tolist() for part in labels), strict=True):
        spread[row, token] += share
    return spread


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_loss_and_gradients_are_those_of_dense_labels(vocabulary: str) -> None:
    model = small_model(vocabulary)
    hidden = torch.randn(POSITIONS, D, dtype=torch.float64, requires_grad=True)
    learnt = [hidden, *model.vocabulary.parameters()]
    fast = model.soft_loss(hidden, LABELS)
    slow = -(dense(LABELS) * model.vocabulary.log_probs(hidden)).sum(-1).mean()
    assert fast.item() == pytest.approx(slow.item(), rel=1e-6)
    for own, other in zip(
        *(torch.autograd.grad(loss, learnt, allow_unused=True) for loss in (fast, slow)),
        strict=True,
    ):
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("vocabulary", ["full", "adaptive"])
def test_one_label_of_a_position_is_its_target(vocabulary: str) -> None:
    model = small_model(vocabulary)
    hidden = torch.randn(POSITIONS, D, dtype=torch.float64)
    targets = torch.tensor([0, 3, 5, 8, 11, 2])
    ones = torch.ones(POSITIONS, dtype=torch.float64)
    alone = SoftLabels(torch.arange(POSITIONS), targets, ones)
    torch.testing.assert_close(model.soft_loss(hidden, alone), model.loss(hidden, targets))


@pytest.mark.parametrize("width", [3, 20])
@pytest.mark.parametrize("positions", [1, 40])
def test_products_of_any_width_in_blocks(
    width: int, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow products are computed otherwise; 40 positions are three blocks."""
    monkeypatch.setattr("stages.models.soft_labels.NARROW_SCORES", 1)
    monkeypatch.setattr("stages.models.cross_entropy.BLOCK_SCORES", {"cpu": 1})
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(positions, width, generator=random, dtype=torch.float64)
    weight = torch.randn(V, width, generator=random, dtype=torch.float64)
    shares = torch.rand(positions, V, generator=random, dtype=torch.float64)
    rows, tokens = shares.nonzero(as_tuple=True)
    labels = SoftLabels(rows, tokens, shares.flatten())
    hidden.requires_grad_()
    weight.requires_grad_()
    fast = linear_soft_cross_entropy(hidden, weight, labels)
    slow = -(shares * (hidden @ weight.T).log_softmax(-1)).sum()
    torch.testing.assert_close(fast, slow)
    pairs = (torch.autograd.grad(loss, (hidden, weight)) for loss in (fast, slow))
    for own, other in zip(*pairs, strict=True):
        torch.testing.assert_close(own, other)


def test_a_weight_that_does_not_learn_has_no_gradient() -> None:
    weight = torch.ones(V, D, dtype=torch.float64)
    hidden = torch.ones(POSITIONS, D, dtype=torch.float64, requires_grad=True)
    linear_soft_cross_entropy(hidden, weight, LABELS).backward()
    assert weight.grad is None and hidden.grad is not None
