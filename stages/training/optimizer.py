"""Optimizers by name, with fused kernels where torch has them."""

from collections.abc import Iterable
from typing import Any

import torch

from stages.methods.method import ParameterGroup
from stages.training.config import OptimizerConfig


def make_optimizer(config: OptimizerConfig, learnt: Iterable[ParameterGroup]) -> torch.optim.Optimizer:
    """The optimizer of the parameters that are learnt; weight decay spares vectors (biases and norms)."""
    groups = [half for group in learnt for half in _halves(config, group) if half["params"]]
    match config.name:
        case "adam":
            return torch.optim.Adam(groups, config.lr, config.betas, config.eps, fused=True)
        case "adamw":
            return torch.optim.AdamW(groups, config.lr, config.betas, config.eps, fused=True)
        case "adagrad":
            on_cpu = groups[0]["params"][0].device.type == "cpu"
            return torch.optim.Adagrad(groups, config.lr, eps=config.eps, fused=on_cpu)
        case "sgd":
            nesterov = config.momentum > 0
            return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=nesterov, fused=True)


def set_learning_rates(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Let every group of `make_optimizer` learn at its factor times the run's rate, or times its own constant one."""
    for group in optimizer.param_groups:
        constant = group["constant_lr"]
        group["lr"] = group["lr_factor"] * (lr if constant is None else constant)


def _halves(config: OptimizerConfig, group: ParameterGroup) -> tuple[dict[str, Any], dict[str, Any]]:
    """Matrices and embeddings, then vectors."""
    matrices, vectors = ([p for p in group.parameters if (p.dim() >= 2) == wanted] for wanted in (True, False))
    shared = {"lr_factor": group.lr_factor, "constant_lr": group.constant_lr}
    decay = config.weight_decay if group.constant_lr is None else 0.0
    return (
        {"params": matrices, "weight_decay": decay, **shared},
        {"params": vectors, "weight_decay": 0.0, **shared},
    )
