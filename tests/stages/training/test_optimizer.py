import pytest
import torch
from torch import nn

from stages.methods.method import ParameterGroup
from stages.training.config import OptimizerConfig
from stages.training.optimizer import make_optimizer


def after(optimizer_of, steps=3):
    """A small model's weights after some updates by the optimizer that `optimizer_of` makes of it."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = optimizer_of(model)
    x = torch.randn(5, 4)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


def groups(model, decay):
    return [
        {"params": [model.weight], "weight_decay": decay},
        {"params": [model.bias], "weight_decay": 0.0},
    ]


PLAIN = {
    "adam": lambda m: torch.optim.Adam(groups(m, 0.1), 0.1, (0.8, 0.9), fused=False, foreach=False),
    "adamw": lambda m: torch.optim.AdamW(groups(m, 0.1), 0.1, (0.8, 0.9), fused=False, foreach=False),
    "adagrad": lambda m: torch.optim.Adagrad(groups(m, 0.1), 0.1, eps=1e-8, foreach=False),
    "sgd": lambda m: torch.optim.SGD(groups(m, 0.1), 0.1, momentum=0.7, nesterov=True, foreach=False),
}


@pytest.mark.parametrize("name", PLAIN)
def test_each_is_what_its_name_says_and_decays_no_vector(name):
    config = OptimizerConfig(name=name, lr=0.1, betas=(0.8, 0.9), momentum=0.7, weight_decay=0.1)
    got = after(lambda model: make_optimizer(config, [ParameterGroup(list(model.parameters()))]))
    torch.testing.assert_close(got, after(PLAIN[name]))


def test_sgd_without_momentum():
    config = OptimizerConfig(name="sgd", lr=0.1, momentum=0.0)
    got = after(lambda model: make_optimizer(config, [ParameterGroup(list(model.parameters()))]))
    torch.testing.assert_close(got, after(lambda m: torch.optim.SGD(m.parameters(), 0.1)))
