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
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        candidate, forget, carry, before = (part.contiguous() for part in given)
        cells, gate = (
            torch.cat((before[None], torch.empty_like(candidate))),
            torch.empty_like(forget),
        )
        arguments = (candidate, forget, carry, cells, gate)
        _walk[(triton.cdiv(before.numel(), BLOCK),)](
            *arguments, *_sizes(candidate), BLOCK=BLOCK, num_warps=2
        )
        ctx.save_for_backward(candidate, carry, cells, gate)
        return cells[1:]

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        candidate, carry, cells, gate = ctx.saved_tensors
        into = [torch.empty_like(like) for like in (candidate, gate, cells[0], cells[0])]
        arguments = (grad.contiguous(), candidate, carry, cells, gate, *into)
        _walk_back[(triton.cdiv(cells[0].numel(), BLOCK),)](
            *arguments, *_sizes(candidate), BLOCK=BLOCK, num_warps=2
        )
        to_candidate, to_forget, to_carry, to_before = into
        return to_candidate, to_forget, to_carry.sum(0), to_before


def _sizes(candidate: Tensor) -> tuple[int, int, int]:
    """L, B·d and d."""
    return len(candidate), candidate[0].numel(), candidate.shape[2]


@triton.jit
def _walk(candidate, forget, carry, cells, gate, length, size, width, BLOCK: tl.constexpr):
    """Compute `cells`, [L + 1, B, d], from its first row, and the gates."""
    # A program computes its cells for all t. Cells at one t do not depend on each other, so
    # programs are independent.
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < size
    v = tl.load(carry + place % width, there, 0.0)
    c = tl.load(cells + place, there, 0.0)
    for t in range(length):
        at = place + t * tl.cast(size, tl.int64)
        u = tl.load(candidate + at, there, 0.0)
        f = 1 / (1 + tl.exp(-tl.load(forget + at, there, 0.0) - v * c))
        c = u + f * (c - u)
        tl.store(cells + at + size, c, there)
        tl.store(gate + at, f, there)


@triton.jit
def _walk_back(
    grad, candidate, carry, cells, gate, to_candidate, to_forget, to_carry, to_before, length, size, width,
    BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < size
    v = tl.load(carry + place % width, there, 0.0)
    by_cell, by_carry = v * 0, v * 0
    for back in range(length):
        t = length - 1 - back
        at = place + t * tl.cast(size, tl.int64)
        by_cell += tl.load(grad + at, there, 0.0)
        u, f = tl.load(candidate + at, there, 0.0), tl.load(gate + at, there, 0.0)
        earlier = tl.load(cells + at, there, 0.0)
        slope = (earlier - u) * f * (1 - f)
        tl.store(to_candidate + at, by_cell * (1 - f), there)
        tl.store(to_forget + at, by_cell * slope, there)
        by_carry += by_cell * slope * earlier
        by_cell *= f + v * slope
    tl.store(to_carry + place, by_carry, there)
    tl.store(to_before + place, by_cell, there)
