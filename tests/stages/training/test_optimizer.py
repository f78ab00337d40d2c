"""Optimizers, and the learning rate of each step."""

import math

import pytest
import torch
from torch import nn

from stages.methods.method import ParameterGroup
from stages.training.config import OptimizerConfig, ScheduleConfig
from stages.training.optimizer import learning_rate_factor, make_optimizer


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
    "adamw": lambda m: torch.optim.AdamW(
        groups(m, 0.1), 0.1, (0.8, 0.9), fused=False, foreach=False
    ),
    "adagrad": lambda m: torch.optim.Adagrad(groups(m, 0.1), 0.1, eps=1e-8, foreach=False),
    "sgd": lambda m: torch.optim.SGD(
        groups(m, 0.1), 0.1, momentum=0.7, nesterov=True, foreach=False
    ),
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


def curve(steps=100, **settings):
    schedule = ScheduleConfig(**settings)
    return [learning_rate_factor(step, steps, schedule) for step in range(1, steps + 1)]


@pytest.mark.parametrize("name", ["cosine", "inverse-sqrt", "constant"])
def test_warm_up_rises_in_equal_parts_to_the_highest_rate(name):
    factors = curve(name=name, warmup=10)
    assert factors[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert max(factors) == 1.0


def test_cosine_falls_through_the_middle_to_its_end():
    factors = curve(name="cosine", warmup=20, final=0.05)
    assert factors[59] == pytest.approx((1 + 0.05) / 2)
    assert factors[-1] == pytest.approx(0.05)
    assert factors[19:] == sorted(factors[19:], reverse=True)


def test_inverse_square_root_falls_with_the_root_of_the_step():
    factors = curve(name="inverse-sqrt", warmup=25)
    assert factors[99] == pytest.approx(math.sqrt(25 / 100))


def test_constant_stays_and_needs_no_warm_up():
    assert curve(name="constant") == [1.0] * 100
    assert curve(name="cosine")[0] < 1.0
