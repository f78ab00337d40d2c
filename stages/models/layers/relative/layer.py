"""Attention of the positions of a stream to those before them, by content and by distance."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.config import AttentionConfig
from stages.models.layers.initialization import initialize
from stages.models.layers.relative.kernel import relative_attention, relative_weights
from stages.models.layers.relative.settings import RelativeSettings
from stages.models.layers.settings import Nothing
from stages.models.layers.sublayer import Attended, Passage, StreamAttention, StreamInputs


class Projected(NamedTuple):
    """Projections of each head."""

    queries: Float[Tensor, "heads B n d_head"]
    keys: Float[Tensor, "heads B all d_head"]
    values: Float[Tensor, "heads B all d_head"]


class RelativeAttention(StreamAttention[Nothing]):
    """Positions attend to those of their own segment and to cached ones; nothing else is remembered."""

    def __init__(self, config: AttentionConfig, settings: RelativeSettings) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.distance = nn.Linear(config.width, config.width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        self.position_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        self.out = nn.Linear(config.width, config.width)

    def initialize(self, blocks: int) -> None:
        initialize(self, self.out, blocks)

    def begin(self, x: Tensor) -> Nothing:
        return Nothing()

    def forward(self, inputs: StreamInputs, passage: Passage, memory: Nothing) -> Attended[Nothing]:
        return Attended(self.attend(inputs.normalized, passage), memory)

    def attend(self, x: Tensor, passage: Passage) -> Tensor:
        """[B, m + n, d], of which the first m are cached -> [B, n, d]."""
        return self.read(self.project(x, passage), passage)

    def project(self, x: Tensor, passage: Passage) -> Projected:
        """Queries of the n positions, keys and values of all."""
        weight_q, weight_kv = self.qkv.weight.split((x.shape[2], 2 * x.shape[2]))
        (q,) = self._heads_first(F.linear(x[:, passage.cached :], weight_q), 1)
        k, v = self._heads_first(F.linear(x, weight_kv), 2)
        return Projected(q, k, v)

    def read(self, projected: Projected, passage: Passage) -> Tensor:
        """Compute the term of the residual stream, [B, n, d]."""
        dropout = self.dropout if self.training else 0.0
        read = [relative_attention(*part, *self._biases, dropout) for part in self._by_span(projected, passage)]
        added: Tensor = self.out(torch.cat(read, 2).permute(1, 2, 0, 3).flatten(2))
        return added

    def weights(self, x: Tensor, passage: Passage) -> list[Tensor]:
        """Attention weights of each span's queries on the positions that it sees, [heads, B, queries, positions]."""
        by_span = self._by_span(self.project(x, passage), passage)
        return [relative_weights(q, k, r, *self._biases) for q, k, _, r in by_span]

    @property
    def _biases(self) -> tuple[Tensor, Tensor]:
        return self.content_bias, self.position_bias

    def _by_span(self, projected: Projected, passage: Passage) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Queries, keys and values of each span, and its distances."""
        cached = passage.cached
        q, k, v = projected
        r = self.distance(passage.distances).unflatten(1, (self.heads, -1)).transpose(0, 1)
        for begin, first, stop in passage.spans:
            own, seen = slice(first - cached, stop - cached), slice(begin, stop)
            yield q[:, :, own], k[:, :, seen], v[:, :, seen], r[:, -(stop - begin + 1) :]

    def _heads_first(self, x: Tensor, number: int) -> Tensor:
        """[B, L, number · d] -> [number, heads, B, L, d_head]."""
        return x.unflatten(2, (number, self.heads, -1)).permute(2, 3, 0, 1, 4).contiguous()
