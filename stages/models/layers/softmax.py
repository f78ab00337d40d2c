"""Causal self-attention in a window."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.settings import AttentionConfig, SoftmaxSettings
from stages.models.layers.sublayer import ContinuedAttention, initialize

SHORT = 512
"""Longest window for which all scores [B, heads, L, L] are computed together in bf16 on CPU."""


def causal_attention(
    q: Float[Tensor, "B heads L d_head"],
    k: Float[Tensor, "B heads L d_head"],
    v: Float[Tensor, "B heads L d_head"],
    dropout: float = 0.0,
) -> Float[Tensor, "B heads L d_head"]:
    """softmax(q k^T / sqrt(d_head)) v, in which each position reads itself and earlier ones.

    In bf16 on short windows, torch's fused CPU kernel takes twice the time of plain products.
    Forward and backward take 30 against 15 ms for 8 x 4 heads x 256 x 64 (torch 2.13).

    `dropout` is the probability that an attention weight is dropped.

    If all scores are equal, each position reads the mean of the values up to its own:

    >>> q = k = torch.zeros(1, 1, 2, 1)
    >>> causal_attention(q, k, torch.tensor([[[[2.0], [4.0]]]])).flatten()
    tensor([2., 3.])
    """
    length = q.shape[2]
    if q.device.type != "cpu" or q.dtype != torch.bfloat16 or length > SHORT:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    # An additive mask keeps the dtype of the scores and costs one pass. Scaling q costs less than
    # scaling the scores.
    square = (length, length)
    future = torch.full(square, -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    scaled_queries = q * q.shape[3] ** -0.5
    scores = scaled_queries @ k.transpose(2, 3) + future
    weights = F.dropout(scores.softmax(-1), dropout, training=dropout > 0)
    return weights @ v


class WindowKeys(NamedTuple):
    """Keys and values of the window so far, [B, heads, m, d_head] each."""

    keys: Tensor
    values: Tensor


class SoftmaxAttention(ContinuedAttention[WindowKeys]):
    """Causal self-attention with several heads."""

    def __init__(self, config: AttentionConfig, settings: SoftmaxSettings) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def initialize(self, blocks: int) -> None:
        initialize(self, self.out, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        q, k, v = self._projected(x)
        y = causal_attention(q, k, v, self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).flatten(2))

    def begin(self, x: Tensor) -> WindowKeys:
        nothing = x.new_empty(len(x), self.heads, 0, x.shape[2] // self.heads)
        return WindowKeys(nothing, nothing)

    def continue_window(
        self, x: Tensor, memory: WindowKeys, place: int
    ) -> tuple[Tensor, WindowKeys]:
        """Outputs for the next n positions [B, n, d] of a window, which read the m before them, too."""
        # [B, heads, n, d_head] each
        q, k, v = self._projected(x)
        keys = torch.cat((memory.keys.to(k.dtype), k), 2)
        values = torch.cat((memory.values.to(v.dtype), v), 2)

        # One position reads all; of several, each reads those up to its own.
        mask = None
        num_positions = q.shape[2]
        if num_positions > 1:
            total = keys.shape[2]
            num_before = total - num_positions
            mask = q.new_ones(num_positions, total, dtype=torch.bool).tril(num_before)
        y = F.scaled_dot_product_attention(q, keys, values, mask)
        return self.out(y.transpose(1, 2).flatten(2)), WindowKeys(keys, values)

    def _projected(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of positions [B, L, d], [B, heads, L, d_head] each."""
        # Split before the transposition: so the gradients of q, k and v are stacked without another
        # copy.
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return tuple(part.transpose(1, 2) for part in parts)
