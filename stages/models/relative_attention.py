"""Attention that sees how far back a position lies, not where it is."""

import torch
import torch.nn.functional as F
from torch import Tensor


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, r: Tensor, content: Tensor, position: Tensor, dropout: float = 0.0
) -> Tensor:
    """softmax_j(((q_i + u)·k_j + (q_i + v)·r_{i-j}) / sqrt(d_head)) v_j over the keys up to the query's own.

    The last L of the K keys are those of the L queries. Products with r are made of every query and
    every distance; the matrix of one row of queries by all distances, read from its L-th number on as
    rows one shorter, has the product of query i and distance i - j at (i, j): the shift is a view.

    Args:
        q: [B, heads, L, d_head].
        k, v: [B, heads, K, d_head].
        r: projected sinusoids of the distances K, K - 1, … 0, [heads, K + 1, d_head].
        content, position: the biases u and v, [heads, d_head].
        dropout: share of the attention weights that is dropped.
    Returns: [B, heads, L, d_head].
    Source: Dai et al. 2019 (Transformer-XL, arXiv:1901.02860), section 3.3 and appendix B.
    """
    length, keys, scale = q.shape[2], k.shape[2], q.shape[3] ** -0.5
    content, position = content[:, None].to(q.dtype), position[:, None].to(q.dtype)
    by_distance = ((q + position) * scale) @ r.transpose(1, 2)
    by_distance = by_distance.masked_fill(_unused(length, keys, q.device), -torch.inf)
    shifted = by_distance.flatten(2)[..., length:].unflatten(2, (length, keys))
    scores = torch.matmul((q + content) * scale, k.transpose(2, 3)) + shifted
    return F.dropout(scores.softmax(-1), dropout, training=dropout > 0) @ v


def _unused(length: int, keys: int, device: torch.device) -> Tensor:
    """Where no query meets a key of its own or its past: row i has its distance K - c there, bool [L, K + 1]."""
    rows, columns = torch.arange(length, device=device), torch.arange(keys + 1, device=device)
    return rows[:, None] + columns < length
