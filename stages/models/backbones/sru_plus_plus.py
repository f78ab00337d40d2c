"""SRU++: attention computes what a fast recurrence reads."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.backbones.segmented import Segmented, StreamBlock
from stages.models.backbones.stream_configs import Cell, SRUPlusPlusConfig
from stages.models.layers.dropout import Dropout
from stages.models.layers.recurrence import cells
from stages.models.layers.stacks import lower
from stages.models.layers.sublayer import Attended, Passage


class Projection(nn.Module):
    """Inputs [B, m + n, d], the first m cached -> the recurrence's three terms at the others, [B, n, 3 d].

    U = LN(Q + alpha softmax(Q K^T / sqrt(p_head)) V) W_o; alpha begins at 0, a recurrence alone. Without attention
    U = LN(Q) W_o.
    """

    def __init__(self, config: SRUPlusPlusConfig, attends: bool) -> None:
        super().__init__()
        width = config.projected
        self.heads, self.attention_dropout = config.heads, config.attention_dropout
        self.down = nn.Linear(config.width, width, bias=False)
        self.keys_values = nn.Linear(width, 2 * width, bias=False) if attends else None
        self.alpha = nn.Parameter(torch.zeros(1)) if attends else None
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(width, 3 * config.width, bias=False)
        for linear in (self.down, self.out) if self.keys_values is None else (self.down, self.keys_values, self.out):
            nn.init.xavier_uniform_(linear.weight)
        with torch.no_grad():
            # Dropout makes the variance of its inputs larger by 1 / (1 - p); as in the authors' code.
            self.out.weight.mul_((1 - config.dropout) ** 0.5)

    def forward(self, raw: Tensor, passage: Passage) -> Tensor:
        if self.keys_values is None or self.alpha is None:
            mixed = self.down(raw[:, passage.cached :])
        else:
            z = self.down(raw)
            queries = z[:, passage.cached :]
            mixed = queries + self.alpha * self._attended(queries, z, passage)
        projected: Tensor = self.out(self.dropout(self.norm(mixed)))
        return projected

    def _attended(self, queries: Tensor, z: Tensor, passage: Passage) -> Tensor:
        assert self.keys_values is not None
        ((begin, _, stop),) = passage.spans  # one, for cells are a memory
        k, v = self.keys_values(z[:, begin:stop]).chunk(2, -1)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (queries, k, v))
        earlier = lower(q.shape[2], k.shape[2], z.device)
        dropout = self.attention_dropout if self.training else 0.0
        read = F.scaled_dot_product_attention(q, k, v, earlier, dropout)
        return read.transpose(1, 2).flatten(2)


class Layer(StreamBlock):
    """h_t = r_t c_t + (1 - r_t) x_t: how much of the cell, and of the input, goes up.

    Source: Lei 2021 (arXiv:2102.12459), section 3; norms, initial weights and dropout are those of the authors' code.
    """

    keeps_graph = False

    def __init__(self, config: SRUPlusPlusConfig, number: int) -> None:
        super().__init__()
        self.projection = Projection(config, config.attends(number))
        self.carry_forget, self.carry_highway = (nn.Parameter(torch.empty(config.width)) for _ in range(2))
        self.forget_bias = nn.Parameter(torch.zeros(config.width))
        self.highway_bias = nn.Parameter(torch.empty(config.width))
        for carry in (self.carry_forget, self.carry_highway):
            nn.init.uniform_(carry, -1, 1)
        nn.init.constant_(self.highway_bias, config.highway_bias)
        # Above the last layer the output's own dropout follows.
        self.dropout = Dropout(config.dropout if number < config.layers else 0.0)

    def begin(self, x: Tensor) -> Cell:
        return Cell(x.new_zeros(len(x), x.shape[2]))

    def forward(self, past: Tensor, x: Tensor, passage: Passage, memory: Cell) -> tuple[Tensor, None, Attended[Cell]]:
        u = self.projection(torch.cat((past, x), 1), passage)
        with torch.autocast(x.device.type, enabled=False):  # half precision loses what cells add up
            candidate, forget, highway = u.to(x.dtype).transpose(0, 1).chunk(3, -1)
            before = memory.c.to(x.dtype)
            c = cells(candidate.contiguous(), forget + self.forget_bias, self.carry_forget, before)
            earlier = torch.cat((before[None], c[:-1]))
            r = torch.sigmoid(highway + self.highway_bias + self.carry_highway * earlier)
            # One mask for all positions: what is dropped at one would come back at the next.
            mask = self.dropout(torch.ones_like(before))
            h = x + ((c.transpose(0, 1) - x) * mask[:, None]) * r.transpose(0, 1)
        return h, None, Attended(h, Cell(c[-1]))


class SRUPlusPlus(Segmented):
    """Embeddings -> f, which is the only key too; carries inputs and cells of each layer."""

    def made_blocks(self, config: SRUPlusPlusConfig) -> list[StreamBlock]:
        return [Layer(config, number + 1) for number in range(config.layers)]

    def block_input(self, embedded: Tensor) -> Tensor:
        x: Tensor = self.dropout(embedded)
        return x.to(self.blocks[0].highway_bias.dtype)  # type: ignore[arg-type]

    def distances(self, longest: int, like: Tensor) -> Tensor:
        """Compute none: order comes from the recurrence."""
        return like.new_empty(0)

    def left(self, x: Tensor) -> Tensor:
        f: Tensor = self.dropout(x)
        return f
