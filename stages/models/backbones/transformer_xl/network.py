"""Transformer-XL: segments that attend to hidden states of the positions before them, by distance."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.backbone import Backbone, Encoding, State
from stages.models.backbones.transformer_xl.config import TransformerXLConfig
from stages.models.layers.dropout import Dropout
from stages.models.layers.feed_forward import FeedForward
from stages.models.layers.initialization import initialize
from stages.models.layers.relative_attention import relative_attention
from stages.models.layers.sinusoids import sinusoids


class Span(NamedTuple):
    """A segment's part of what is read: its queries [first, stop), which attend to positions from `begin` on."""

    begin: int
    first: int
    stop: int


class RelativeAttention(nn.Module):
    """Attention of positions to those of their own segment and to cached ones, by content and by distance."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.distance = nn.Linear(config.width, config.width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        self.position_bias = nn.Parameter(torch.zeros(config.heads, config.width // config.heads))
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, cached: int, distances: Tensor, spans: list[Span]) -> Tensor:
        """Positions [B, m + n, d], of which the first m = `cached` ask nothing -> [B, n, d].

        Args:
            distances: sinusoids of the distances D, D - 1, … 0, [D + 1, d]; D at least the keys of a span.
            spans: of the n positions, in order; counted from the first cached one.
        """
        weight_q, weight_kv = self.qkv.weight.split((x.shape[2], 2 * x.shape[2]))
        q = self._heads_first(F.linear(x[:, cached:], weight_q), 1)[0]
        k, v = self._heads_first(F.linear(x, weight_kv), 2)
        r = self.distance(distances).unflatten(1, (self.heads, -1)).transpose(0, 1)
        dropout = self.dropout if self.training else 0.0
        read = []
        for begin, first, stop in spans:
            own, seen = slice(first - cached, stop - cached), slice(begin, stop)
            parts = q[:, :, own], k[:, :, seen], v[:, :, seen], r[:, -(stop - begin + 1) :]
            read.append(relative_attention(*parts, self.content_bias, self.position_bias, dropout))
        return self.out(torch.cat(read, 2).permute(1, 2, 0, 3).flatten(2))

    def _heads_first(self, x: Tensor, number: int) -> Tensor:
        """[B, L, number · d] -> [number, heads, B, L, d_head]."""
        return x.unflatten(2, (number, self.heads, -1)).permute(2, 3, 0, 1, 4).contiguous()


class Block(nn.Module):
    """Relative attention, then feed-forward, each on the normalized residual stream."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = RelativeAttention(config)
        self.ffn_norm = nn.LayerNorm(config.width)
        self.ffn = FeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, past: Tensor, x: Tensor, distances: Tensor, spans: list[Span]) -> tuple[Tensor, Tensor]:
        """Cached [B, m, d] and present [B, n, d] -> the next residual stream and the feed-forward input."""
        normed = self.attention_norm(torch.cat((past, x), 1))
        x = x + self.dropout(self.attention(normed, past.shape[1], distances, spans))
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input


class TransformerXL(Backbone):
    """Embeddings -> (f, g); carries the inputs of each layer, and where in a segment they end.

    A position of a segment attends to the M positions before its segment, without gradient, and to
    those of its own segment up to itself. However a stream is cut into calls, the numbers are the same.

    Source: Dai et al. 2019 (arXiv:1901.02860), section 3.
    """

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        assert config.segment_length is not None and config.memory_length is not None, "the stage fills them in"
        self.length, self.memory = config.segment_length, config.memory_length
        self.scale = config.width**0.5
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        initialize(self.blocks)

    def forward(self, embedded: Tensor, state: State = None) -> Encoding:
        """Embeddings [B, n, d] and state -> hidden [B, n, d] (f), ffn_input [B, n, d] (g), the state after them.

        Args:
            state: inputs of each layer at the latest m positions [layers, B, m, d], and how many
                positions of the segment under way they end with, int64 [1]; None: a stream begins.
        """
        if state is None:
            cached = embedded.new_empty((len(self.blocks), len(embedded), 0, embedded.shape[2]))
            state = cached, torch.zeros(1, dtype=torch.int64)
        cached, place = state[0], int(state[1])
        hidden, ffn_input = [], []
        for piece in self._pieces(embedded, place):
            f, g, cached, place = self._read(piece, cached, place)
            hidden.append(f)
            ffn_input.append(g)
        return Encoding(torch.cat(hidden, 1), torch.cat(ffn_input, 1), (cached, torch.tensor([place])))

    def _pieces(self, embedded: Tensor, place: int) -> tuple[Tensor, ...]:
        """What is read at once: where gradients are wanted, a segment, for those before it are to have none."""
        if not torch.is_grad_enabled():
            return (embedded,)
        borders = range(self.length - place, embedded.shape[1], self.length)
        return embedded.tensor_split(list(borders), 1)

    def _read(self, embedded: Tensor, cached: Tensor, place: int) -> tuple[Tensor, Tensor, Tensor, int]:
        """As `forward`, of positions read at once."""
        x = self.dropout(embedded * self.scale)
        spans = self._spans(cached.shape[2], x.shape[1], place)
        distances = self.dropout(self._distances(max(span.stop - span.begin for span in spans), x))
        after = (place + x.shape[1]) % self.length
        forget = max(0, cached.shape[2] + x.shape[1] - self.memory - after)
        kept = []
        for block, past in zip(self.blocks, cached.to(x.dtype), strict=True):
            kept.append(torch.cat((past, x.detach()), 1)[:, forget:])
            x, ffn_input = block(past, x, distances, spans)
        return self.norm(x), ffn_input, torch.stack(kept), after

    def _spans(self, cached: int, number: int, place: int) -> list[Span]:
        """The segments' parts of `number` positions behind the cached ones."""
        end = cached + number
        starts = range(cached - place, end, self.length)
        return [Span(max(0, s - self.memory), max(s, cached), min(s + self.length, end)) for s in starts]

    def _distances(self, longest: int, like: Tensor) -> Tensor:
        """Sinusoids of the distances `longest` … 0, [longest + 1, d]."""
        return sinusoids(longest + 1, like.shape[2], like.device).flip(0).to(like.dtype)
