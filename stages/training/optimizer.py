"""Optimizers by name, with fused kernels if torch has them; learning rates of groups and of each step."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from stages.methods.method import ParameterGroup
from stages.models.layers.sublayer import LearnsApart
from stages.training.config import OptimizerConfig, ScheduleConfig
from stages.training.rows import RowAdam


def make_optimizer(config: OptimizerConfig, learnt: Iterable[ParameterGroup]) -> torch.optim.Optimizer:
    """The optimizer of the trained parameters; vectors (biases and norms) have no weight decay."""
    groups = [half for group in learnt for half in _halves(config, group) if half["params"]]
    match config.name:
        case "adam" | "adamw":
            decoupled = config.name == "adamw"
            return RowAdam(groups, config.lr, config.betas, config.eps, fused=True, decoupled_weight_decay=decoupled)
        case "adagrad":
            # torch has a fused Adagrad only for the CPU.
            on_cpu = groups[0]["params"][0].device.type == "cpu"
            return torch.optim.Adagrad(groups, config.lr, eps=config.eps, fused=on_cpu)
        case "sgd":
            nesterov = config.momentum > 0
            return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=nesterov, fused=True)


def set_learning_rates(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of every group of `make_optimizer`: its factor times the run's rate, or its own constant rate."""
    for group in optimizer.param_groups:
        constant = group["constant_lr"]
        group["lr"] = group["lr_factor"] * (lr if constant is None else constant)


def freeze_others(model: nn.Module, learnt: Iterable[ParameterGroup]) -> None:
    """Turn off gradients of untrained parameters; modules without trained ones also run without dropout."""
    wanted = {id(parameter) for group in learnt for parameter in group.parameters}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in wanted)
    model.train()
    for part in model.children():
        learned = [parameter.requires_grad for parameter in part.parameters()]
        part.train(any(learned) or not learned)


def _halves(config: OptimizerConfig, group: ParameterGroup) -> tuple[dict[str, Any], dict[str, Any]]:
    """Groups of the optimizer: matrices and embeddings, then vectors."""
    matrices, vectors = ([p for p in group.parameters if (p.dim() >= 2) == wanted] for wanted in (True, False))
    shared = {"lr_factor": group.lr_factor, "constant_lr": group.constant_lr}
    # Tables have no weight decay: a row that few positions read would decay faster than it learns.
    decay = config.weight_decay if group.constant_lr is None else 0.0
    return (
        {"params": matrices, "weight_decay": decay, **shared},
        {"params": vectors, "weight_decay": 0.0, **shared},
    )


def set_apart(learnt: Sequence[ParameterGroup], model: nn.Module) -> list[ParameterGroup]:
    """The groups without parameters that layers train separately, followed by groups of these."""
    asked = [part.apart() for part in model.modules() if isinstance(part, LearnsApart)]
    apart = {id(parameter) for one in asked for parameter in one.parameters}
    common = [group._replace(parameters=[p for p in group.parameters if id(p) not in apart]) for group in learnt]
    return common + [
        ParameterGroup(both, group.lr_factor, one.lr, apart=True)
        for group in learnt
        for one in asked
        if (both := _in_both(group.parameters, one.parameters))
    ]


def _in_both(some: Sequence[nn.Parameter], others: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    wanted = {id(parameter) for parameter in others}
    return [parameter for parameter in some if id(parameter) in wanted]


def clipped_together(model: nn.Module, groups: Sequence[ParameterGroup]) -> list[list[nn.Parameter]]:
    """Sets of parameters clipped by a common norm: all ordinary ones, and each group that is clipped separately."""
    alone = [group.parameters for group in groups if group.apart]
    apart = {id(parameter) for parameters in alone for parameter in parameters}
    return [[parameter for parameter in model.parameters() if id(parameter) not in apart], *alone]


def learning_rate_factor(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """Learning rate of an update as a multiple of the highest one.

    Rises linearly over the warm-up, then: `cosine` falls to `final` at the last step, `inverse-sqrt`
    falls as sqrt(warmup / step), `constant` stays.

    Args:
        step: number of the update, from 1.
        steps: all updates of the training.
    """
    warmup = schedule.warmup
    if step < warmup:
        return step / warmup
    match schedule.name:
        case "cosine":
            progress = (step - warmup) / max(1, steps - warmup)
            return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
        case "inverse-sqrt":
            return math.sqrt(max(1, warmup) / step)
        case _:
            return 1.0
