"""The recurrence of `sru_plus_plus.cells` on a GPU: one Triton kernel for all positions, and one
for the gradients.

Shapes: L positions, B rows, d width; a program computes BLOCK of the B·d cells at all L positions.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64


def fused_cells(
    candidate: Float[Tensor, "L B d"],
    forget: Float[Tensor, "L B d"],
    carry: Float[Tensor, " d"],
    before: Float[Tensor, "B d"],
) -> Float[Tensor, "L B d"]:
    """Cells c_1 … c_L, float32 or float64; arguments are those of `sru_plus_plus.cells`."""
    return _FusedCells.apply(candidate, forget, carry, before)  # type: ignore[no-untyped-call]


class _FusedCells(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, candidate: Tensor, forget: Tensor, carry: Tensor, before: Tensor
    ) -> Tensor:
        """See `fused_cells`."""
        candidate = candidate.contiguous()
        forget = forget.contiguous()
        carry = carry.contiguous()

        # [L + 1, B, d]: row 0 is the cell before the first position.
        cells = torch.cat((before.contiguous()[None], torch.empty_like(candidate)))
        gate = torch.empty_like(forget)
        grid = (triton.cdiv(before.numel(), BLOCK),)
        arguments = (candidate, forget, carry, cells, gate)
        _walk[grid](*arguments, *_sizes(candidate), BLOCK=BLOCK, num_warps=2)
        ctx.save_for_backward(candidate, carry, cells, gate)
        return cells[1:]

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_cells: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of candidate and forget [L, B, d], carry [d], and the first cells [B, d]."""
        candidate, carry, cells, gate = ctx.saved_tensors
        grad_candidate = torch.empty_like(candidate)
        grad_forget = torch.empty_like(gate)
        # The gradient of the carry is one for each row of the batch, and is summed here.
        grad_carry = torch.empty_like(cells[0])
        grad_before = torch.empty_like(cells[0])

        num_cells = cells[0].numel()
        grid = (triton.cdiv(num_cells, BLOCK),)
        inputs = (grad_cells.contiguous(), candidate, carry, cells, gate)
        results = (grad_candidate, grad_forget, grad_carry, grad_before)
        _walk_back[grid](*inputs, *results, *_sizes(candidate), BLOCK=BLOCK, num_warps=2)
        return grad_candidate, grad_forget, grad_carry.sum(0), grad_before


def _sizes(candidate: Tensor) -> tuple[int, int, int]:
    """L, B·d and d."""
    return len(candidate), candidate[0].numel(), candidate.shape[2]


@triton.jit
def _walk(candidate, forget, carry, cells, gate, length, size, width, BLOCK: tl.constexpr):
    """Compute `cells`, [L + 1, B, d], from its first row, and the gates."""
    # A program computes its cells for all t. Cells at one t do not depend on each other, so
    # programs are independent.
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    v = tl.load(carry + place % width, inside, 0.0)
    c = tl.load(cells + place, inside, 0.0)
    for t in range(length):
        index = place + t * tl.cast(size, tl.int64)
        u = tl.load(candidate + index, inside, 0.0)
        x = tl.load(forget + index, inside, 0.0)
        f = 1 / (1 + tl.exp(-x - v * c))
        c = u + f * (c - u)
        tl.store(cells + index + size, c, inside)
        tl.store(gate + index, f, inside)


@triton.jit
def _walk_back(
    grad, candidate, carry, cells, gate, to_candidate, to_forget, to_carry, to_before, length, size, width,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients, from the last position to the first."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    v = tl.load(carry + place % width, inside, 0.0)
    # Zeros in the type of the cells.
    by_cell = v * 0
    by_carry = v * 0
    for back in range(length):
        t = length - 1 - back
        index = place + t * tl.cast(size, tl.int64)
        by_cell += tl.load(grad + index, inside, 0.0)
        u = tl.load(candidate + index, inside, 0.0)
        f = tl.load(gate + index, inside, 0.0)
        earlier = tl.load(cells + index, inside, 0.0)
        slope = (earlier - u) * f * (1 - f)
        tl.store(to_candidate + index, by_cell * (1 - f), inside)
        tl.store(to_forget + index, by_cell * slope, inside)
        by_carry += by_cell * slope * earlier
        by_cell *= f + v * slope
    tl.store(to_carry + place, by_carry, inside)
    tl.store(to_before + place, by_cell, inside)
