"""The classifier, beside loops in float64."""

import numpy as np
import pytest
import torch

from stages.models.head_settings import ClassifierSettings
from stages.models.heads import Classifier, pooled

POOLS = ("mean", "last", "first")


def slow(hidden: np.ndarray, lengths: list[int], pool: str) -> np.ndarray:
    rows = [hidden[row, :length] for row, length in enumerate(lengths)]
    return np.stack([{"mean": one.mean(0), "last": one[-1], "first": one[0]}[pool] for one in rows])


@pytest.mark.parametrize("pool", POOLS)
def test_padding_is_no_part_of_an_example(pool: str) -> None:
    hidden, lengths = np.random.default_rng(0).normal(size=(4, 5, 3)), [5, 1, 3, 2]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = pooled(torch.from_numpy(hidden), mask, pool)
    np.testing.assert_allclose(found.numpy(), slow(hidden, lengths, pool), rtol=1e-14)


@pytest.mark.parametrize("pool", POOLS)
def test_gradients(pool: str) -> None:
    torch.manual_seed(0)
    head = Classifier(3, ClassifierSettings(labels=4, pool=pool)).double()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    hidden = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: head(x, mask), (hidden, head.weight, head.bias))
    assert head(hidden, None).shape == (2, 4)
