"""A Transformer with memory tokens: extra rows that read earlier text, for the tokens of a segment
to read.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stages.models.backbones.segmented import SegmentedByDistance, StreamBlock
from stages.models.backbones.stream_configs import MemoryTransformerConfig
from stages.models.layers.dropout import Dropout
from stages.models.layers.relative import relative_scores
from stages.models.layers.settings import DenseSettings, Nothing
from stages.models.layers.sublayer import Attended, Dense, SegmentContext, initialize
from stages.models.vocabulary import INITIAL_NORM


class Rows(nn.Module):
    """Weights of a block for one kind of rows: content-based attention and a feed-forward layer."""

    def __init__(self, config: MemoryTransformerConfig) -> None:
        super().__init__()
        width = config.width
        head_width = width // config.heads
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(width)
        self.ffn_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, head_width))
        self.out = nn.Linear(width, width)
        self.ffn = Dense(config, DenseSettings())
        self.attention_dropout = Dropout(config.attention_dropout)
        self.dropout = Dropout(config.dropout)

        initialize(self, self.out, config.layers)
        self.ffn.initialize(config.layers)

    def queries(self, x: Tensor) -> Tensor:
        """Queries of rows, [B, n, d] -> [heads, B, n, d_head]."""
        return self._by_head(self.attention_norm(x), self.qkv.weight[: x.shape[2]])

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of rows, [B, K, d] -> [heads, B, K, d_head] each."""
        width = x.shape[2]
        key_weight, value_weight = self.qkv.weight[width:].chunk(2)
        normalized = self.attention_norm(x)
        return self._by_head(normalized, key_weight), self._by_head(normalized, value_weight)

    def content_scores(self, q: Tensor, k: Tensor) -> Tensor:
        """(q + u)·k / sqrt(d_head), [heads, B, n, K]."""
        return (
            (q + self.content_bias[:, None, None].to(q.dtype))
            @ k.transpose(2, 3)
            * q.shape[3] ** -0.5
        )

    def next(self, x: Tensor, weights: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Residual stream of rows [B, n, d] after the block, given attention weights, and the
        feed-forward input.
        """
        read = (self.attention_dropout(weights) @ v).permute(1, 2, 0, 3).flatten(2)
        x = x + self.dropout(self.out(read))
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input

    def _by_head(self, x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.linear(x, weight).unflatten(2, (self.heads, -1)).permute(2, 0, 1, 3)


class TokenRows(Rows):
    """Weights for rows of tokens, which attend to tokens by content and by distance."""

    def __init__(self, config: MemoryTransformerConfig) -> None:
        super().__init__(config)
        self.distance = nn.Linear(config.width, config.width, bias=False)
        self.position_bias = nn.Parameter(torch.zeros_like(self.content_bias))
        nn.init.xavier_uniform_(self.distance.weight)

    def token_scores(self, q: Tensor, k: Tensor, passage: SegmentContext) -> Tensor:
        """Scores of the latest K tokens, [heads, B, n, K], as in Transformer-XL."""
        r = (
            self.distance(passage.distances[-(k.shape[2] + 1) :])
            .unflatten(1, (self.heads, -1))
            .transpose(0, 1)
        )
        return relative_scores(q, k, r, self.content_bias, self.position_bias)


class WeightedValues(NamedTuple):
    """Attention weights of a block, and the values that they multiply."""

    weights: Tensor
    """[heads, B, rows, seen]."""
    values: Tensor


class MemoryBlock(StreamBlock):
    """A block in which memory rows read themselves and E, the inputs at the M positions before the
    segment.

    Tokens read memory, E and their own segment. Memory must not read the segment: tokens read
    memory, so the model would not be causal. `docs/explanation/memory-tokens.md` has a table.
    """

    keeps_graph = False

    def __init__(
        self, config: MemoryTransformerConfig, number: int, controller: Rows | None
    ) -> None:
        super().__init__()
        self.memory_tokens = config.memory_tokens
        self.bottleneck = config.memory_rows == "bottleneck"
        # Nothing reads the memory rows of the last block, except its own tokens with a bottleneck.
        self.writes = bool(config.memory_tokens) and (self.bottleneck or number < config.layers)
        self.tokens = TokenRows(config)
        has_own_rows = self.writes and config.memory_rows != "shared" and controller is None
        self.controller = Rows(config) if has_own_rows else None
        # In a list, the module is not registered: weights that all blocks share belong to none of
        # them.
        self._shared = [controller or self.tokens]

    @property
    def rows(self) -> Rows:
        """Weights of the memory rows."""
        return self._shared[0] if self.controller is None else self.controller

    def begin(self, x: Tensor) -> Nothing:
        return Nothing()

    def forward(
        self, past: Tensor, x: Tensor, passage: SegmentContext, memory: Nothing
    ) -> tuple[Tensor, Tensor, Attended[Any]]:
        rows, tokens = x.tensor_split((self.memory_tokens,), 1)
        after, _ = (
            self.rows.next(rows, *self.memory_attention(past, rows, passage))
            if self.writes
            else (rows, None)
        )
        read = after if self.bottleneck else rows
        tokens, ffn_input = self.tokens.next(
            tokens, *self.token_attention(past, read, tokens, passage)
        )
        return torch.cat((after, tokens), 1), ffn_input, Attended(tokens, memory)

    def memory_attention(
        self, past: Tensor, rows: Tensor, passage: SegmentContext
    ) -> WeightedValues:
        """Attention of memory rows to themselves and to E."""
        ((begin, _, _),) = passage.spans
        segment_start = passage.cached - passage.place
        extent = past[:, begin:segment_start]
        k, v = self.rows.keys_values(torch.cat((rows, extent), 1))
        q = self.rows.queries(rows)
        scores = self.rows.content_scores(q, k)
        return WeightedValues(scores.softmax(-1), v)

    def token_attention(
        self, past: Tensor, rows: Tensor, tokens: Tensor, passage: SegmentContext
    ) -> WeightedValues:
        """Attention of tokens to memory rows, to E unless memory is a bottleneck, and to their
        segment.
        """
        ((begin, _, _),) = passage.spans
        segment_start = passage.cached - passage.place
        first = segment_start if self.bottleneck else begin
        q = self.tokens.queries(tokens)
        k, v = self.tokens.keys_values(torch.cat((rows, past[:, first:], tokens), 1))

        # rows have no positions, so their scores are by content alone
        k_rows, k_tokens = k.tensor_split((self.memory_tokens,), 2)
        by_token = self.tokens.token_scores(q, k_tokens, passage)
        by_row = self.tokens.content_scores(q, k_rows)
        scores = torch.cat((by_row, by_token), 3)
        return WeightedValues(scores.softmax(-1), v)


class MemoryTransformer(SegmentedByDistance):
    """A Transformer-XL with memory tokens, which are reset in every segment; every call computes
    them from E.

    Source: Burtsev et al. 2020 (arXiv:2006.11527), section 3. Unlike theirs, memory reads E, not
    the segment.
    """

    reads_segments_apart = True

    def __init__(self, config: MemoryTransformerConfig) -> None:
        super().__init__(config)
        if config.memory_tokens:
            begun = torch.empty(config.memory_tokens, config.width)
            self.leading = nn.Parameter(
                nn.init.normal_(begun, std=INITIAL_NORM * config.width**-0.5)
            )

    def build_blocks(self, config: MemoryTransformerConfig) -> list[StreamBlock]:
        self.controller = (
            Rows(config) if config.shared_controller and config.memory_tokens else None
        )
        return [MemoryBlock(config, number + 1, self.controller) for number in range(config.layers)]
