"""Optimizers by name, with fused kernels if torch has them; learning rates of groups and of each
step.

Tables in the host's memory learn by the rows that an update read: other rows are neither read nor
changed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from stages.methods.method import ParameterGroup
from stages.models.layers.sublayer import HasSeparateParameters
from stages.training.config import OptimizerConfig, ScheduleConfig


def make_optimizer(
    config: OptimizerConfig, learnt: Iterable[ParameterGroup]
) -> torch.optim.Optimizer:
    """The optimizer of the trained parameters; vectors (biases and norms) have no weight decay."""
    groups: list[dict[str, Any]] = []
    for group in learnt:
        matrices = [parameter for parameter in group.parameters if parameter.dim() >= 2]
        vectors = [parameter for parameter in group.parameters if parameter.dim() < 2]
        # Tables have no weight decay: a row that few positions read would decay faster than it
        # learns.
        decay = config.weight_decay if group.constant_lr is None else 0.0
        rates = {"lr_factor": group.lr_factor, "constant_lr": group.constant_lr}
        halves = (
            {"params": matrices, "weight_decay": decay},
            {"params": vectors, "weight_decay": 0.0},
        )
        groups += [half | rates for half in halves if half["params"]]
    match config.name:
        case "adam" | "adamw":
            decoupled = config.name == "adamw"
            return RowAdam(
                groups,
                config.lr,
                config.betas,
                config.eps,
                fused=True,
                decoupled_weight_decay=decoupled,
            )
        case "adagrad":
            # torch has a fused Adagrad only for the CPU.
            on_cpu = groups[0]["params"][0].device.type == "cpu"
            return torch.optim.Adagrad(groups, config.lr, eps=config.eps, fused=on_cpu)
        case "sgd":
            nesterov = config.momentum > 0
            return torch.optim.SGD(
                groups, config.lr, config.momentum, nesterov=nesterov, fused=True
            )


def set_learning_rates(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of every group of `make_optimizer`: its factor times the run's rate, or its own
    constant rate.
    """
    for group in optimizer.param_groups:
        constant = group["constant_lr"]
        group["lr"] = group["lr_factor"] * (lr if constant is None else constant)


def freeze_others(model: nn.Module, learnt: Iterable[ParameterGroup]) -> None:
    """Turn off gradients of untrained parameters; modules without trained ones also run without
    dropout.
    """
    trained = {id(parameter) for group in learnt for parameter in group.parameters}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    model.train()
    for part in model.children():
        learned = [parameter.requires_grad for parameter in part.parameters()]
        part.train(any(learned) or not learned)


def split_groups(learnt: Sequence[ParameterGroup], model: nn.Module) -> list[ParameterGroup]:
    """The groups without parameters that layers train separately, followed by groups of these."""
    requests = [
        part.separate_parameters()
        for part in model.modules()
        if isinstance(part, HasSeparateParameters)
    ]
    claimed = {id(parameter) for request in requests for parameter in request.parameters}
    common = []
    for group in learnt:
        others = [parameter for parameter in group.parameters if id(parameter) not in claimed]
        common.append(group._replace(parameters=others))
    for group, request in product(learnt, requests):
        requested = {id(parameter) for parameter in request.parameters}
        if both := [parameter for parameter in group.parameters if id(parameter) in requested]:
            common.append(ParameterGroup(both, group.lr_factor, request.lr, apart=True))
    return common


def clipped_together(
    model: nn.Module, groups: Sequence[ParameterGroup]
) -> list[list[nn.Parameter]]:
    """Sets of parameters clipped by a common norm: all ordinary ones, and each group that is
    clipped separately.
    """
    alone = [group.parameters for group in groups if group.apart]
    clipped_alone = {id(parameter) for parameters in alone for parameter in parameters}
    return [
        [parameter for parameter in model.parameters() if id(parameter) not in clipped_alone],
        *alone,
    ]


def learning_rate_factor(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """Learning rate of an update as a multiple of the highest one.

    Rises linearly over the warm-up, then: `cosine` falls to `final` at the last step,
    `inverse-sqrt` falls as sqrt(warmup / step), `constant` stays.

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
            return (
                schedule.final
                + (1 - schedule.final) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
            )
        case "inverse-sqrt":
            return math.sqrt(max(1, warmup) / step)
        case _:
            return 1.0


State = dict[str, Tensor]
"""Tensors of a table [R, e]: `exp_avg` and `exp_avg_sq` [R, e], and `step` [R], the updates that
read each row.
"""


def step_rows(
    table: Float[Tensor, "R e"],
    state: State,
    rows: Int64[Tensor, " n"],
    gradient: Float[Tensor, "n e"],
    lr: float,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Update some rows of a table, and their moments, in place.

    Each row has its own Adam, whose steps are the updates that read the row. Its moments do not
    decay in between. Rows that every update reads learn as with plain Adam. Work and temporary
    memory grow with n, not with R.

    Args:
        rows: indices, each once.

    The first step of a row has the length of the rate, for any gradient:

    >>> table = torch.zeros(3, 1)
    >>> state = {"exp_avg": torch.zeros(3, 1), "exp_avg_sq": torch.zeros(3, 1), "step": torch.zeros(3)}
    >>> step_rows(table, state, torch.tensor([1]), torch.tensor([[2.0]]), 0.5, (0.9, 0.98), 1e-8)
    >>> table.flatten().round(decimals=4).tolist()
    [0.0, -0.5, 0.0]

    Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1, with a step count for each row.
    """
    first, second = betas
    number = state["step"][rows] + 1
    mean = state["exp_avg"][rows].lerp_(gradient, 1 - first)
    square = state["exp_avg_sq"][rows].mul_(second).addcmul_(gradient, gradient, value=1 - second)
    state["step"][rows] = number
    state["exp_avg"][rows] = mean
    state["exp_avg_sq"][rows] = square
    length = (square / (1 - second**number)[:, None]).sqrt_().add_(eps)
    table[rows] -= lr * mean / (1 - first**number)[:, None] / length


class RowAdam(torch.optim.Adam):
    """Adam that changes only the rows in a sparse gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None or not table.grad.is_sparse:
                    continue
                gradient = table.grad.coalesce()
                table.grad = None
                state = self.state[table]
                if not state:
                    state |= {name: torch.zeros_like(table) for name in ("exp_avg", "exp_avg_sq")}
                    state["step"] = table.new_zeros(len(table))
                rows = gradient.indices()[0]
                values = gradient.values()
                step_rows(table, state, rows, values, group["lr"], group["betas"], group["eps"])
        return super().step(closure)


def clip(parameters: Sequence[nn.Parameter], max_norm: float) -> None:
    """Scale the gradients of some parameters by a common factor, so that their joint norm is at
    most `max_norm`.
    """
    nn.utils.clip_grad_norm_([_dense(parameter) for parameter in parameters], max_norm)


def _dense(parameter: nn.Parameter) -> Tensor:
    """The parameter; if its gradient is sparse, a tensor whose gradient is the rows of that
    gradient.
    """
    if parameter.grad is None or not parameter.grad.is_sparse:
        return parameter
    parameter.grad = parameter.grad.coalesce()
    rows = parameter.grad.values().detach()
    shown = torch.empty_like(rows)
    shown.grad = rows
    return shown
