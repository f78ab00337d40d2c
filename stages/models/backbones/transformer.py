"""Decoder Transformer, pre-norm, with fused causal attention."""

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.backbone import Backbone, Compilable, Encoding, Inputs
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers import WINDOW_ATTENTION
from stages.models.layers.dropout import Dropout
from stages.models.layers.sinusoids import sinusoids
from stages.models.layers.stacks import ChosenLayers, let_begin


class Positions(nn.Module):
    """Position embeddings, added to those of tokens."""

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


class Block(ChosenLayers):
    """Attention, then feed-forward, each on the normalized residual stream."""

    def forward(self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None) -> tuple[Tensor, Tensor]:
        """[B, L, d], tokens and offsets [B, L] -> the next residual stream and the input of the feed-forward layer."""
        x, _ = self.lookup(x, tokens, document_offset, self.lookup.begin(x))
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input


class Transformer(Backbone, Compilable):
    """Embeddings -> (f, g); carries no state from window to window."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = config.width**0.5
        self.positions = Positions(config)
        self.dropout = Dropout(config.dropout)
        blocks = [Block(config, number + 1, WINDOW_ATTENTION) for number in range(config.layers)]
        let_begin(blocks, config.layers)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(config.width)

    def compiled_parts(self) -> list[nn.Module]:
        return [self]  # windows have one shape, so that all of it is one graph

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g), no state."""
        embedded = inputs.embedded
        positions = self.positions(embedded.shape[1], embedded.device)
        # Embeddings begin 1 / √d wide, for the softmax reads them too; sinusoids are as large as 1.
        x = self.dropout(embedded * self.scale + positions)
        for block in self.blocks:
            x, ffn_input = block(x, inputs.tokens, inputs.document_offset)
        return Encoding(self.norm(x), ffn_input)
