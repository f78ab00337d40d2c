"""Decoder Transformer, pre-norm, with fused causal attention."""

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.backbone import Backbone, Encoding, State
from stages.models.backbones.transformer.config import TransformerConfig
from stages.models.layers.attention import causal_attention
from stages.models.layers.dropout import Dropout
from stages.models.layers.feed_forward import FeedForward
from stages.models.layers.initialization import initialize
from stages.models.layers.sinusoids import sinusoids


class Positions(nn.Module):
    """What tells position i from position j, added to the embeddings."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.width, self.max_positions = config.width, config.max_positions
        self.learned = None
        if config.positions == "learned":
            if config.max_positions is None:
                raise UsageError("Learned positions need model.max_positions.")
            std = config.width**-0.5
            self.learned = nn.Parameter(nn.init.normal_(torch.empty(config.max_positions, config.width), std=std))

    def forward(self, length: int, device: torch.device) -> Tensor:
        """Vectors [length, d] of the first positions."""
        if self.learned is None:
            return sinusoids(length, self.width, device)
        if length > len(self.learned):
            raise UsageError(
                f"A window of {length} tokens is longer than the {len(self.learned)} positions "
                "that the model has learned; use a shorter context."
            )
        return self.learned[:length]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        y = causal_attention(q, k, v, self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then feed-forward, each on the normalized residual stream."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.ffn_norm = nn.LayerNorm(config.width)
        self.ffn = FeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L, d] -> the next residual stream and the input of the feed-forward layer."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input


class Transformer(Backbone):
    """Embeddings -> (f, g); carries no state from window to window."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = config.width**0.5
        self.positions = Positions(config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        initialize(self.blocks)

    def forward(self, embedded: Tensor, state: State = None) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g), no state."""
        positions = self.positions(embedded.shape[1], embedded.device)
        x = self.dropout(embedded * self.scale + positions)
        for block in self.blocks:
            x, ffn_input = block(x)
        return Encoding(self.norm(x), ffn_input)
