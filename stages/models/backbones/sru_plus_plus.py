"""SRU++: a fast recurrence whose inputs come from attention."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stages.machine import runs_triton
from stages.models.backbones.segmented import Segmented, StreamBlock
from stages.models.backbones.stream_configs import Cell, SRUPlusPlusConfig
from stages.models.layers.dropout import Dropout
from stages.models.layers.stacks import lower
from stages.models.layers.sublayer import Attended, SegmentContext


def cells(
    candidate: Float[Tensor, "L B d"],
    forget: Float[Tensor, "L B d"],
    carry: Float[Tensor, " d"],
    before: Float[Tensor, "B d"],
) -> Float[Tensor, "L B d"]:
    """c_t = f_t c_{t-1} + (1 - f_t) u_t with f_t = sigmoid(z_t + v c_{t-1}), for t = 1 … L.

    `candidate` is u, `forget` z, `carry` v, and `before` c_0.

    f_t depends on c_{t-1} through v, so no associative scan computes it. The loop over t makes
    three calls for each step, without allocations. The backward loop makes one; all else is
    computed for all t together. On a CPU both take a small part of the time of autograd through the
    loop. A GPU with Triton runs one kernel for all t in each direction, from `recurrence_kernels`.

    A gate of 1/2 keeps half of the cell, and adds half of the input:

    >>> u, z = torch.tensor([[[4.0]], [[0.0]]]), torch.zeros(2, 1, 1)
    >>> cells(u, z, torch.zeros(1), torch.zeros(1, 1)).flatten()
    tensor([2., 1.])

    Source: Lei 2021 (SRU++, arXiv:2102.12459), equations 1 and 2.
    """
    if runs_triton(candidate.device.type):
        from stages.models.layers.recurrence_kernels import fused_cells

        return fused_cells(candidate, forget, carry, before)
    return _Cells.apply(candidate, forget, carry, before)  # type: ignore[no-untyped-call]


class _Cells(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, candidate: Tensor, forget: Tensor, carry: Tensor, before: Tensor
    ) -> Tensor:
        """Cells [L, B, d]; shapes of the arguments are those of `cells`."""
        cell = torch.empty_like(candidate)
        gate = torch.empty_like(forget)
        carry_of_row = carry.expand_as(before)
        last = before
        # written in place: a step makes no tensor of its own
        for u, z, f, c in zip(candidate, forget, gate, cell, strict=True):
            torch.addcmul(z, carry_of_row, last, out=f).sigmoid_()
            torch.lerp(u, last, f, out=c)
            last = c
        ctx.save_for_backward(candidate, gate, cell, carry, before)
        return cell

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_cells: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of candidate and forget [L, B, d], carry [d], and the cell before [B, d]."""
        candidate, gate, cell, carry, before = ctx.saved_tensors
        earlier = torch.cat((before[None], cell[:-1]))

        # dc_t / dz_t; with it dc_t / dc_{t-1} = f_t + v dc_t / dz_t.
        by_forget = (earlier - candidate) * gate * (1 - gate)
        by_earlier = torch.addcmul(gate, carry, by_forget)

        # A cell has a gradient of its own, and one through the next cell: from the last to the
        # first.
        total = grad_cells.contiguous().clone()
        for t in range(len(total) - 1, 0, -1):
            total[t - 1].addcmul_(total[t], by_earlier[t])

        grad_candidate = total * (1 - gate)
        grad_forget = total * by_forget
        grad_carry = (grad_forget * earlier).sum((0, 1))
        grad_before = total[0] * by_earlier[0]
        return grad_candidate, grad_forget, grad_carry, grad_before


class Projection(nn.Module):
    """Inputs [B, m + n, d], the first m cached -> the three terms of the recurrence at the n
    others, [B, n, 3 d].

    U = LN(Q + alpha softmax(Q K^T / sqrt(p_head)) V) W_o. alpha is initialized to 0, which gives a
    plain recurrence. Without attention U = LN(Q) W_o.
    """

    def __init__(self, config: SRUPlusPlusConfig, attends: bool) -> None:
        super().__init__()
        width = config.projected
        self.heads = config.heads
        self.attention_dropout = config.attention_dropout
        self.down = nn.Linear(config.width, width, bias=False)
        self.keys_values = nn.Linear(width, 2 * width, bias=False) if attends else None
        self.alpha = nn.Parameter(torch.zeros(1)) if attends else None
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(width, 3 * config.width, bias=False)
        for linear in (
            (self.down, self.out)
            if self.keys_values is None
            else (self.down, self.keys_values, self.out)
        ):
            nn.init.xavier_uniform_(linear.weight)
        with torch.no_grad():
            # Compensates dropout, which increases the variance by 1 / (1 - p), as in the authors'
            # code.
            self.out.weight.mul_((1 - config.dropout) ** 0.5)

    def forward(self, raw: Tensor, passage: SegmentContext) -> Tensor:
        """Cached inputs and inputs [B, M + L, d] -> projections of the inputs, [B, L, e]."""
        if self.keys_values is None or self.alpha is None:
            mixed = self.down(raw[:, passage.cached :])
        else:
            z = self.down(raw)
            queries = z[:, passage.cached :]
            attended = self._attended(queries, z, passage)
            mixed = queries + self.alpha * attended
        return self.out(self.dropout(self.norm(mixed)))

    def _attended(self, queries: Tensor, z: Tensor, passage: SegmentContext) -> Tensor:
        """Values that queries [B, L, e] read of z [B, M + L, e], up to their own position: [B, L, e]."""
        assert self.keys_values is not None
        ((begin, _, stop),) = passage.spans  # one span, because cells are memory
        keys, values = self.keys_values(z[:, begin:stop]).chunk(2, -1)
        q = self._by_head(queries)
        k = self._by_head(keys)
        v = self._by_head(values)

        mask = lower(q.shape[2], k.shape[2], z.device)
        dropout = self.attention_dropout if self.training else 0.0
        read = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        return read.transpose(1, 2).flatten(2)

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, L, heads * d_head] -> [B, heads, L, d_head]."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Run(NamedTuple):
    """Results of a layer's recurrence, [L, B, d] each."""

    cells: Tensor
    earlier: Tensor
    """Cell before each position, c_{t-1}."""
    forget: Tensor
    """z in f = sigmoid(z + v c_{t-1})."""
    highway: Tensor
    """r, the weight of the cell in the output."""


class Layer(StreamBlock):
    """Layer with output h_t = r_t c_t + (1 - r_t) x_t, a gated mean of cell and input.

    Source: Lei 2021 (arXiv:2102.12459), section 3; norms, initial weights and dropout are those of
    the authors' code.
    """

    keeps_graph = False

    def __init__(self, config: SRUPlusPlusConfig, number: int) -> None:
        super().__init__()
        self.projection = Projection(config, config.attends(number))
        self.carry_forget = nn.Parameter(torch.empty(config.width))
        self.carry_highway = nn.Parameter(torch.empty(config.width))
        self.forget_bias = nn.Parameter(torch.zeros(config.width))
        self.highway_bias = nn.Parameter(torch.empty(config.width))

        nn.init.uniform_(self.carry_forget, -1, 1)
        nn.init.uniform_(self.carry_highway, -1, 1)
        nn.init.constant_(self.highway_bias, config.highway_bias)
        # After the last layer comes the dropout of the output.
        is_last = number >= config.layers
        self.dropout = Dropout(0.0 if is_last else config.dropout)

    def begin(self, x: Tensor) -> Cell:
        return Cell(x.new_zeros(len(x), x.shape[2]))

    def forward(
        self, past: Tensor, x: Tensor, passage: SegmentContext, memory: Cell
    ) -> tuple[Tensor, None, Attended[Cell]]:
        run = self.run(past, x, passage, memory)
        with torch.autocast(x.device.type, enabled=False):
            # [B, L, d] each
            cells_by_row = run.cells.transpose(0, 1)
            highway = run.highway.transpose(0, 1)

            # One mask for all positions: otherwise an element dropped at one position would return
            # at the next.
            last_cell = run.cells[-1]
            mask = self.dropout(torch.ones_like(last_cell))
            change = (cells_by_row - x) * mask[:, None]
            h = x + change * highway
        return h, None, Attended(h, Cell(last_cell))

    def run(self, past: Tensor, x: Tensor, passage: SegmentContext, memory: Cell) -> Run:
        """Run the recurrence over x [B, L, d], after cached inputs [B, M, d] and the previous cell.

        Results are [L, B, d].
        """
        projected = self.projection(torch.cat((past, x), 1), passage)
        # half precision loses sums in the cells
        with torch.autocast(x.device.type, enabled=False):
            by_position = projected.to(x.dtype).transpose(0, 1)
            candidate, forget, highway = by_position.chunk(3, -1)
            forget = forget + self.forget_bias
            first = memory.c.to(x.dtype)
            c = cells(candidate.contiguous(), forget, self.carry_forget, first)

            # the cell before each position
            earlier = torch.cat((first[None], c[:-1]))
            carried = self.carry_highway * earlier
            r = torch.sigmoid(highway + self.highway_bias + carried)
        return Run(c, earlier, forget, r)


class SRUPlusPlus(Segmented):
    """Embeddings -> f, which is also the only key; carries inputs and cells of each layer."""

    def build_blocks(self, config: SRUPlusPlusConfig) -> list[StreamBlock]:
        return [Layer(config, number + 1) for number in range(config.layers)]

    def block_input(self, embedded: Tensor) -> Tensor:
        x: Tensor = self.dropout(embedded)
        return x.to(self.blocks[0].highway_bias.dtype)  # type: ignore[arg-type]

    def distances(self, longest: int, like: Tensor) -> Tensor:
        """Return an empty tensor: the recurrence gives the order, so there are no relative
        positions.
        """
        return like.new_empty(0)

    def block_output(self, x: Tensor) -> Tensor:
        return self.dropout(x)
