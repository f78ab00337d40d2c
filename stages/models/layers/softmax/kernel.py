"""Causal attention: torch's fused kernel, and plain products where they are faster."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

SHORT = 512
"""Longest window for which scores [B, heads, L, L] are made whole in bf16 on CPU."""


def causal_attention(
    q: Float[Tensor, "B heads L d_head"],
    k: Float[Tensor, "B heads L d_head"],
    v: Float[Tensor, "B heads L d_head"],
    dropout: float = 0.0,
) -> Float[Tensor, "B heads L d_head"]:
    """softmax(q k^T / sqrt(d_head)) v, each position reading itself and those before it.

    torch's fused CPU kernel takes twice the time of plain products in bf16 on short windows
    (30 against 15 ms for 8 x 4 heads x 256 x 64, forward and backward, torch 2.13).

    Args:
        q, k, v: [B, heads, L, d_head].
        dropout: share of the attention weights that is dropped.
    Returns: [B, heads, L, d_head].
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] <= SHORT:
        return _plain(q, k, v, dropout)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


def _plain(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    length = q.shape[2]
    future = torch.full((length, length), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    weights = ((q * q.shape[3] ** -0.5) @ k.transpose(2, 3) + future).softmax(-1)
    return F.dropout(weights, dropout, training=dropout > 0) @ v
