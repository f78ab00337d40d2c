"""Optimizers by name, with fused kernels where torch has them."""

import torch
from torch import nn

from stages.training.config import OptimizerConfig


def make_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of the parameters that are learnt; weight decay spares vectors (biases and norms)."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    match config.name:
        case "adam":
            return torch.optim.Adam(groups, config.lr, config.betas, config.eps, fused=True)
        case "adamw":
            return torch.optim.AdamW(groups, config.lr, config.betas, config.eps, fused=True)
        case "adagrad":
            on_cpu = parameters[0].device.type == "cpu"
            return torch.optim.Adagrad(groups, config.lr, eps=config.eps, fused=on_cpu)
        case "sgd":
            nesterov = config.momentum > 0
            return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=nesterov, fused=True)
