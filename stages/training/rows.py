"""Training of tables by the rows that an update read: other rows are neither read nor changed."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

State = dict[str, Tensor]
"""Tensors of a table [R, e]: `exp_avg` and `exp_avg_sq` [R, e], and `step` [R], the updates that read each row."""


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

    Each row has its own Adam, whose steps are the updates that read the row. Its moments do not decay in between. Rows
    that every update reads learn as with plain Adam. Work and temporary memory grow with n, not with R.

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
    (first, second), number = betas, state["step"][rows] + 1
    mean = state["exp_avg"][rows].lerp_(gradient, 1 - first)
    square = state["exp_avg_sq"][rows].mul_(second).addcmul_(gradient, gradient, value=1 - second)
    state["step"][rows], state["exp_avg"][rows], state["exp_avg_sq"][rows] = number, mean, square
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
                gradient, table.grad = table.grad.coalesce(), None
                state = self.state[table]
                if not state:
                    state |= {name: torch.zeros_like(table) for name in ("exp_avg", "exp_avg_sq")}
                    state["step"] = table.new_zeros(len(table))
                rows, values = gradient.indices()[0], gradient.values()
                step_rows(table, state, rows, values, group["lr"], group["betas"], group["eps"])
        return super().step(closure)


def clip(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Scale the gradients of some parameters by a common factor, so that their joint norm is at most `most`."""
    nn.utils.clip_grad_norm_([_dense(parameter) for parameter in parameters], most)


def _dense(parameter: nn.Parameter) -> Tensor:
    """The parameter; if its gradient is sparse, a tensor whose gradient is the rows of that gradient."""
    if parameter.grad is None or not parameter.grad.is_sparse:
        return parameter
    parameter.grad = parameter.grad.coalesce()
    rows = parameter.grad.values().detach()
    shown = torch.empty_like(rows)
    shown.grad = rows
    return shown
