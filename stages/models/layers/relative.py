"""Attention to earlier positions of a stream, by content and by distance (Transformer-XL)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.settings import AttentionConfig, Nothing, RelativeSettings
from stages.models.layers.sublayer import (
    Attended,
    SegmentContext,
    StreamAttention,
    StreamInputs,
    initialize,
)

MANY = 64
"""Number of queries above which one product for each row takes half the time of one product for the
batch.
"""


def relative_attention(
    q: Float[Tensor, "heads B L d_head"],
    k: Float[Tensor, "heads B K d_head"],
    v: Float[Tensor, "heads B K d_head"],
    r: Float[Tensor, "heads K+1 d_head"],
    content: Float[Tensor, "heads d_head"],
    position: Float[Tensor, "heads d_head"],
    dropout: float = 0.0,
) -> Float[Tensor, "heads B L d_head"]:
    """softmax_j(((q_i + u)·k_j + (q_i + v)·r_{i-j}) / sqrt(d_head)) v_j over the keys up to the
    query's own.

    The last L of the K keys belong to the L queries. Every query is multiplied with every distance
    K … 0. Read this matrix row after row, from its L-th number, as rows of K numbers: then (i, j)
    is query i at distance i - j. So the shift is a view. For future keys it reads the first L - i'
    numbers of each row i'. These have no other use, and are set to -inf.

    Args:
        r: projected sinusoids of the distances K, K - 1, … 0.
        content, position: the biases u and v.
        dropout: probability that an attention weight is dropped.
    Source: Dai et al. 2019 (Transformer-XL, arXiv:1901.02860), section 3.3 and appendix B.

    The second query of the example in `relative_scores`, with values 3 and 6, reads 2/3 · 3 + 1/3 ·
    6:

    >>> q, k, nothing = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 2, 1), torch.zeros(1, 1)
    >>> v, by_distance = torch.tensor([[[[3.0], [6.0]]]]), torch.tensor([[[9.0], [0.6931], [0.0]]])
    >>> relative_attention(q, k, v, by_distance, nothing, nothing).flatten()
    tensor([4.0000])
    """
    weights = relative_scores(q, k, r, content, position).softmax(-1).flatten(0, 1)
    weights = F.dropout(weights, dropout, training=dropout > 0)
    return torch.bmm(weights, v.flatten(0, 1)).view_as(q)


def relative_scores(
    q: Float[Tensor, "heads B L d_head"],
    k: Float[Tensor, "heads B K d_head"],
    r: Float[Tensor, "heads K+1 d_head"],
    content: Float[Tensor, "heads d_head"],
    position: Float[Tensor, "heads d_head"],
) -> Float[Tensor, "heads B L K"]:
    """Scores of the keys before the softmax of `relative_attention`; -inf for future keys.

    Two queries and two keys of 0. Distance 1 scores log 2 more than distance 0; the first query
    cannot see the second key:

    >>> q, k, nothing = torch.ones(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), torch.zeros(1, 1)
    >>> by_distance = torch.tensor([[[9.0], [0.6931], [0.0]]])  # of 2, 1 and 0; no key is 2 away
    >>> relative_scores(q, k, by_distance, nothing, nothing)
    tensor([[[[0.0000,   -inf],
              [0.6931, 0.0000]]]])
    """
    scale = q.shape[3] ** -0.5
    content_bias = content[:, None, None].to(q.dtype)
    position_bias = position[:, None, None].to(q.dtype)
    by_content = (q + content_bias) * scale
    by_position = (q + position_bias) * scale
    by_distance: Tensor = _ByDistance.apply(by_position, r)  # type: ignore[no-untyped-call]

    # One product for all heads and rows adds the scores by content: [heads · B, L, K]
    content_queries = by_content.flatten(0, 1)
    content_keys = k.flatten(0, 1).transpose(1, 2)
    scores = torch.baddbmm(by_distance, content_queries, content_keys)
    return scores.view(*q.shape[:3], k.shape[2])


class _ByDistance(torch.autograd.Function):
    """Queries [heads, B, L, d_head] times r [heads, K + 1, d_head], shifted: [heads · B, L, K], a
    view.

    The first L - i numbers of each row i become -inf in place. For the view, autograd alone would
    zero and copy the gradients twice.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, r: Tensor) -> Tensor:
        """Scores [heads · B, L, K] by distance.

        Args:
            queries: [heads, B, L, d_head].
            r: [heads, K + 1, d_head], from distance K to 0.
        """
        ctx.save_for_backward(queries, r)
        _, num_rows, length, _ = queries.shape
        num_keys = r.shape[1] - 1

        # [heads · B, L, K + 1]: the product of each query with each distance
        if length < MANY:
            products = torch.bmm(queries.flatten(1, 2), r.transpose(1, 2))
            products = products.view(-1, length, num_keys + 1)
        else:
            copies = r[:, None].expand(-1, num_rows, -1, -1).flatten(0, 1)
            products = torch.bmm(queries.flatten(0, 1), copies.transpose(1, 2))

        # Row i has no use for its first L - i numbers; the shift reads them as future keys of the row
        # before.
        square = (length, length)
        hidden = torch.full(square, -torch.inf, dtype=products.dtype, device=products.device)
        products[:, :, :length].add_(hidden.triu().flip(1))

        # Without the first L numbers, rows of K + 1 read as rows of K are shifted by one each.
        shifted = products.flatten(1)[:, length:]
        return shifted.unflatten(1, (length, num_keys))

    @staticmethod
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the queries [heads, B, L, d_head] and of r [heads, K + 1, d_head]."""
        queries, r = ctx.saved_tensors
        num_tables, length, num_keys = grad_scores.shape
        num_heads = len(queries)

        # The inverse of the shift: the first L numbers were cut off.
        grad_products = grad_scores.new_empty(num_tables, length * (num_keys + 1))
        grad_products[:, :length] = 0
        grad_products[:, length:] = grad_scores.flatten(1)
        grad_products = grad_products.view(num_heads, -1, num_keys + 1)

        grad_queries = torch.bmm(grad_products, r).view_as(queries)
        flat_queries = queries.flatten(1, 2).transpose(1, 2)
        grad_r = torch.bmm(flat_queries, grad_products).transpose(1, 2)
        return grad_queries, grad_r


class Projected(NamedTuple):
    """Projections of each head."""

    queries: Float[Tensor, "heads B n d_head"]
    keys: Float[Tensor, "heads B all d_head"]
    values: Float[Tensor, "heads B all d_head"]


class RelativeAttention(StreamAttention[Nothing]):
    """Attention to the segment up to the position itself, and to cached positions; it has no other
    memory.
    """

    def __init__(self, config: AttentionConfig, settings: RelativeSettings) -> None:
        super().__init__()
        width = config.width
        head_width = width // config.heads
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.distance = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, head_width))
        self.position_bias = nn.Parameter(torch.zeros(config.heads, head_width))
        self.out = nn.Linear(width, width)

    def initialize(self, blocks: int) -> None:
        initialize(self, self.out, blocks)

    def begin(self, x: Tensor) -> Nothing:
        return Nothing()

    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Nothing
    ) -> Attended[Nothing]:
        return Attended(self.attend(inputs.normalized, passage), memory)

    def attend(self, x: Tensor, passage: SegmentContext) -> Tensor:
        """[B, m + n, d] -> [B, n, d]; the first m positions are cached."""
        return self.read(self.project(x, passage), passage)

    def project(self, x: Tensor, passage: SegmentContext) -> Projected:
        """Queries of the n new positions, and keys and values of all m + n."""
        # Cached positions need no queries.
        weight_q, weight_kv = self.qkv.weight.split((x.shape[2], 2 * x.shape[2]))
        (q,) = self._heads_first(F.linear(x[:, passage.cached :], weight_q), 1)
        k, v = self._heads_first(F.linear(x, weight_kv), 2)
        return Projected(q, k, v)

    def read(self, projected: Projected, passage: SegmentContext) -> Tensor:
        """Compute the term that is added to the residual stream, [B, n, d]."""
        dropout = self.dropout if self.training else 0.0
        reads: list[Tensor] = []
        for q, k, v, r in self._by_span(projected, passage):
            read = relative_attention(q, k, v, r, self.content_bias, self.position_bias, dropout)
            reads.append(read)
        return self.out(torch.cat(reads, 2).permute(1, 2, 0, 3).flatten(2))

    def weights(self, x: Tensor, passage: SegmentContext) -> list[Tensor]:
        """Attention weights of each span, [heads, B, queries, positions that it sees]."""
        result: list[Tensor] = []
        for q, k, _, r in self._by_span(self.project(x, passage), passage):
            scores = relative_scores(q, k, r, self.content_bias, self.position_bias)
            result.append(scores.softmax(-1))
        return result

    def _by_span(
        self, projected: Projected, passage: SegmentContext
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Queries [heads, B, L, d_head], keys and values [heads, B, K, d_head], and projected
        distances [heads, K + 1, d_head] of each span.
        """
        q, k, v = projected
        r = self.distance(passage.distances)
        r = r.unflatten(1, (self.heads, -1)).transpose(0, 1)
        for begin, first, stop in passage.spans:
            # Cached positions have no queries.
            queries = slice(first - passage.cached, stop - passage.cached)
            keys = slice(begin, stop)
            # Distances fall to 0, so those of a span are at the end.
            num_distances = stop - begin + 1
            distances = r[:, -num_distances:]
            yield q[:, :, queries], k[:, :, keys], v[:, :, keys], distances

    def _heads_first(self, x: Tensor, number: int) -> Tensor:
        """[B, L, number · d] -> [number, heads, B, L, d_head]."""
        return x.unflatten(2, (number, self.heads, -1)).permute(2, 3, 0, 1, 4).contiguous()
