"""Blocks of an encoder, and of a decoder that attends to what it says: pre-norm, with the residual stream between."""

from torch import Tensor, nn

from stages.models.layers.attention import Attention, Heads, lower
from stages.models.layers.dense import Dense
from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import BlockSizes, DenseSettings
from stages.models.layers.sublayer import FeedForward, initialize


class EncoderBlock(nn.Module):
    """Attention in both directions, reading of slots if there are some, feed-forward."""

    def __init__(self, config: BlockSizes, blocks: int, slots: int = 0) -> None:
        """`blocks`: that the stack has."""
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention, self.ffn = Attention(config), Dense(config, DenseSettings())
        self.memory_norm = nn.LayerNorm(config.width) if slots else None
        self.memory = Attention(config) if slots else None
        self.dropout = Dropout(config.dropout)
        for attention in filter(None, (self.attention, self.memory)):
            initialize(attention, attention.out, blocks)
        self.ffn.initialize(blocks)

    def forward(self, x: Tensor, mask: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        """[B, S, d], keys that count, and slots [B, k, d] -> the next residual stream."""
        normalized = self.attention_norm(x)
        x = x + self.dropout(self.attention(normalized, self.attention.of(normalized), mask))
        if self.memory is not None and self.memory_norm is not None:
            assert memory is not None, "slots are read"
            x = x + self.dropout(self.memory(self.memory_norm(x), self.memory.of(memory)))
        added: Tensor = self.dropout(self.ffn(self.ffn_norm(x)))
        return x + added


class DecoderBlock(nn.Module):
    """Attention to the past, then to what the encoder says, then feed-forward."""

    def __init__(self, config: BlockSizes, blocks: int, ffn: FeedForward | None = None) -> None:
        """`blocks`: that the stack has; `ffn`: None: dense."""
        super().__init__()
        self.attention_norm, self.source_norm, self.ffn_norm = (nn.LayerNorm(config.width) for _ in range(3))
        self.attention, self.source_attention = Attention(config), Attention(config)
        self.ffn: FeedForward = Dense(config, DenseSettings()) if ffn is None else ffn
        self.dropout = Dropout(config.dropout)
        for attention in (self.attention, self.source_attention):
            initialize(attention, attention.out, blocks)
        self.ffn.initialize(blocks)

    def forward(
        self, x: Tensor, past: Heads | None, source: Heads | None, source_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Heads]:
        """[B, L, d] -> the next residual stream, the input of the feed-forward layer, and keys up to here.

        Args:
            source: keys and values of what the encoder says; None: nothing yet.
        """
        normalized = self.attention_norm(x)
        own = self.attention.of(normalized).after(past)
        length, total = x.shape[1], own.keys.shape[2]
        # A square is masked by the fused kernel itself, and a single position reads everything.
        mask = None if length in (1, total) else lower(length, total, x.device)
        x = x + self.dropout(self.attention(normalized, own, mask, causal=length == total))
        if source is not None:
            x = x + self.dropout(self.source_attention(self.source_norm(x), source, source_mask))
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input, own
