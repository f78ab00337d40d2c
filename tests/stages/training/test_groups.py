"""Parameters that learn apart: taken out of their groups, at their own rate, clipped by themselves."""

import pytest
import torch
from torch import nn

from stages.methods.method import ParameterGroup
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers.memory_settings import ProductKeysSettings
from stages.models.layers.sublayer import HasSeparateParameters, SeparateParameters
from stages.training.config import OptimizerConfig
from stages.training.optimizer import (
    clipped_together,
    make_optimizer,
    set_learning_rates,
    split_groups,
)
from tests.builders.training import V, trainer


class Table(nn.Module, HasSeparateParameters):
    def __init__(self, lr):
        super().__init__()
        self.rows, self.scale, self.lr = (
            nn.Parameter(torch.ones(3, 2)),
            nn.Parameter(torch.ones(2)),
            lr,
        )

    def separate_parameters(self):
        return SeparateParameters([self.rows], self.lr)


def model(lr=0.5):
    return nn.ModuleDict({"first": nn.Linear(2, 2), "table": Table(lr), "last": nn.Linear(2, 2)})


def names(net, parameters):
    own = {id(parameter): name for name, parameter in net.named_parameters()}
    return [own[id(parameter)] for parameter in parameters]


def test_they_are_taken_out_of_the_groups_that_have_them():
    net = model()
    learnt = [ParameterGroup([*net["first"].parameters(), *net["table"].parameters()], 0.1)]
    learnt += [ParameterGroup(list(net["last"].parameters()))]
    common, other, apart = split_groups(learnt, net)
    assert names(net, common.parameters) == ["first.weight", "first.bias", "table.scale"]
    assert names(net, other.parameters) == ["last.weight", "last.bias"]
    assert names(net, apart.parameters) == ["table.rows"]
    assert (apart.lr_factor, apart.constant_lr, apart.apart, common.apart) == (
        0.1,
        0.5,
        True,
        False,
    )
    first, second = clipped_together(net, [common, other, apart])
    assert names(net, first) == [name for name, _ in net.named_parameters() if name != "table.rows"]
    assert names(net, second) == ["table.rows"]


def test_what_is_frozen_does_not_learn_apart():
    net = model()
    assert len(split_groups([ParameterGroup(list(net["last"].parameters()))], net)) == 1


def test_a_model_without_them_learns_as_before():
    net = nn.Linear(2, 2)
    learnt = [ParameterGroup(list(net.parameters()))]
    assert split_groups(learnt, net) == learnt
    assert clipped_together(net, learnt) == [list(net.parameters())]


@pytest.mark.parametrize(("own", "rate", "decay"), [(0.5, 0.5, 0.0), (None, 0.02, 0.1)])
def test_a_rate_of_their_own_does_not_change_and_goes_without_decay(own, rate, decay):
    net = model(own)
    optimizer = make_optimizer(
        OptimizerConfig(lr=0.1, weight_decay=0.1),
        split_groups([ParameterGroup(list(net.parameters()))], net),
    )
    set_learning_rates(optimizer, 0.02)
    found = {
        name: group for group in optimizer.param_groups for name in names(net, group["params"])
    }
    assert (found["table.rows"]["lr"], found["table.rows"]["weight_decay"]) == (rate, decay)
    assert (found["first.weight"]["lr"], found["first.weight"]["weight_decay"]) == (0.02, 0.1)
    assert optimizer.param_groups[0]["lr"] == 0.02


def test_a_factor_of_their_group_multiplies_their_own_rate():
    net = model(0.5)
    groups = split_groups([ParameterGroup(list(net.parameters()), 0.1)], net)
    optimizer = make_optimizer(OptimizerConfig(lr=0.1), groups)
    set_learning_rates(optimizer, 0.02)
    found = {
        name: group["lr"]
        for group in optimizer.param_groups
        for name in names(net, group["params"])
    }
    assert (found["first.weight"], found["table.rows"]) == (
        pytest.approx(0.002),
        pytest.approx(0.05),
    )


def test_each_layer_that_learns_apart_is_clipped_by_itself():
    net = nn.ModuleDict({"one": Table(0.5), "other": Table(None), "last": nn.Linear(2, 2)})
    groups = split_groups([ParameterGroup(list(net.parameters()))], net)
    together = [names(net, parameters) for parameters in clipped_together(net, groups)]
    assert together == [
        ["one.scale", "other.scale", "last.weight", "last.bias"],
        ["one.rows"],
        ["other.rows"],
    ]


def test_a_large_gradient_of_theirs_does_not_shorten_the_others(tmp_path):
    keys = ProductKeysSettings(heads=2, sub_keys=4, neighbors=2)
    run = trainer(
        tmp_path,
        model=TransformerConfig(vocab_size=V, width=8, heads=2, max_positions=8, feed_forward=keys),
        clip_norm=1.0,
    )
    for parameter in run.run.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    values, first = run.run.model.backbone.blocks[0].ffn.values, next(run.run.model.parameters())
    values.grad += 100
    first.grad.view(-1)[0] = 0.5
    norms = []
    run.updates.optimizer.step = lambda: norms.append(
        [float(p.grad.norm()) for p in (values, first)]
    )
    run.updates.change_weights()
    assert norms == [[pytest.approx(1, rel=1e-5), 0.5]]
