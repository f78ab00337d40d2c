"""The recurrence of a simple recurrent unit: cells whose forget gate reads the cell before."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from stages.machine import runs_triton


def cells(
    candidate: Float[Tensor, "L B d"],
    forget: Float[Tensor, "L B d"],
    carry: Float[Tensor, " d"],
    before: Float[Tensor, "B d"],
) -> Float[Tensor, "L B d"]:
    """c_t = f_t c_{t-1} + (1 - f_t) u_t with f_t = sigmoid(z_t + v c_{t-1}), for t = 1 … L.

    f_t depends on c_{t-1} through v, so no associative scan computes it. The loop over t has three kernels a step, in
    memory that is there before; its backward pass has one a step, and all else is computed for all t at once. On a
    CPU both together take a small part of the time of autograd through the loop. A GPU with Triton has one kernel for
    all t each way, in `recurrence_kernels`.

    A gate that is open half forgets half; what is forgotten is replaced.

    >>> u, z = torch.tensor([[[4.0]], [[0.0]]]), torch.zeros(2, 1, 1)
    >>> cells(u, z, torch.zeros(1), torch.zeros(1, 1)).flatten()
    tensor([2., 1.])

    Args:
        candidate: u, [L, B, d].
        forget: z, [L, B, d].
        carry: v, [d].
        before: c_0, [B, d].
    Source: Lei 2021 (SRU++, arXiv:2102.12459), equations 1 and 2.
    """
    if runs_triton(candidate.device.type):
        from stages.models.layers.recurrence_kernels import fused_cells

        return fused_cells(candidate, forget, carry, before)
    made: Tensor = _Cells.apply(candidate, forget, carry, before)  # type: ignore[no-untyped-call]
    return made


class _Cells(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, candidate: Tensor, forget: Tensor, carry: Tensor, before: Tensor) -> Tensor:
        cell, gate, last = torch.empty_like(candidate), torch.empty_like(forget), before
        rows = carry.expand_as(before)
        for u, z, f, c in zip(candidate, forget, gate, cell, strict=True):
            torch.addcmul(z, rows, last, out=f).sigmoid_()
            torch.lerp(u, last, f, out=c)
            last = c
        ctx.save_for_backward(candidate, gate, cell, carry, before)
        return cell

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        candidate, gate, cell, carry, before = ctx.saved_tensors
        earlier = torch.cat((before[None], cell[:-1]))
        # dc_t / dz_t; with it dc_t / dc_{t-1} = f_t + v dc_t / dz_t.
        by_forget = (earlier - candidate) * gate * (1 - gate)
        by_earlier = torch.addcmul(gate, carry, by_forget)
        total = grad.contiguous().clone()
        for t in range(len(total) - 1, 0, -1):
            total[t - 1].addcmul_(total[t], by_earlier[t])
        to_forget = total * by_forget
        return total * (1 - gate), to_forget, (to_forget * earlier).sum((0, 1)), total[0] * by_earlier[0]
