"""Pre-norm decoder Transformer over windows."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.backbone import Backbone, Encoding, Inputs
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers import WINDOW_ATTENTION
from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import BlockMemory, in_blocks, of_blocks
from stages.models.layers.sinusoids import sinusoids
from stages.models.layers.stacks import ChosenLayers, initialize_layers


class SinusoidalPositions(nn.Module):
    """Position embeddings, learned or sinusoidal, which are added to token embeddings."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.width = config.width
        self.max_positions = config.max_positions
        self.learned = None
        if config.positions == "learned":
            assert config.max_positions is not None, "the stage fills it in"
            std = config.width**-0.5
            self.learned = nn.Parameter(
                nn.init.normal_(torch.empty(config.max_positions, config.width), std=std)
            )

    def forward(self, length: int, device: torch.device, first: int = 0) -> Tensor:
        """Vectors [length, d] for the positions from `first`. Raises: UsageError beyond the learned
        positions.
        """
        if self.learned is None:
            return sinusoids(length, self.width, device, first)
        if first + length > len(self.learned):
            raise UsageError(
                f"A window of {first + length} tokens is longer than the {len(self.learned)} positions "
                "that the model has learned; use a shorter context."
            )
        return self.learned[first : first + length]


class TransformerBlock(ChosenLayers):
    """A pre-norm block: lookup, attention, feed-forward."""

    def forward(
        self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Inputs [B, L, d], tokens and offsets [B, L] -> residual stream, and input of the
        feed-forward layer.
        """
        x, _ = self.look_up(x, tokens, document_offset, self.lookup.begin(x))
        return self._fed(x + self.dropout(self.attention(self.attention_norm(x))))

    def begin(self, x: Tensor) -> BlockMemory:
        """Create the memory at the start of a window; inputs [B, n, d] give its B, dtype and
        device.
        """
        return BlockMemory(self.attention.begin(x), self.lookup.begin(x))

    def continue_window(
        self, x: Tensor, inputs: Inputs, memory: BlockMemory, place: int
    ) -> tuple[Tensor, Tensor, BlockMemory]:
        """Outputs of `forward` for the inputs of a window after the first `place`, and the memory
        after them.
        """
        x, lookup_memory = self.look_up(x, inputs.tokens, inputs.document_offset, memory.lookup)
        normalized = self.attention_norm(x)
        attended, attention_memory = self.attention.continue_window(
            normalized, memory.attention, place
        )
        x = x + self.dropout(attended)
        hidden, ffn_input = self._fed(x)
        return hidden, ffn_input, BlockMemory(attention_memory, lookup_memory)

    def _fed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input


class Transformer(Backbone):
    """Embeddings -> (f, g); carries no state from window to window.

    If all attention layers can, it also reads a window in pieces, and then carries a state between
    them.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = config.width**0.5
        self.positions = SinusoidalPositions(config)
        self.dropout = Dropout(config.dropout)
        blocks = [
            TransformerBlock(config, number + 1, WINDOW_ATTENTION)
            for number in range(config.layers)
        ]
        initialize_layers(blocks, config.layers)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(config.width)

    def compiled_parts(self) -> list[nn.Module]:
        return [self]  # windows have one shape, so it compiles to one graph

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g); the state if one
        was given.
        """
        if inputs.state is not None:
            return self._continue_window(inputs, inputs.state)
        embedded = inputs.embedded
        positions = self.positions(embedded.shape[1], embedded.device)
        # Embeddings are initialized at a scale of 1 / √d, because the softmax uses them too;
        # sinusoids have scale 1.
        x = self.dropout(embedded * self.scale + positions)
        for block in self.blocks:
            x, ffn_input = block(x, inputs.tokens, inputs.document_offset)
        return Encoding(self.norm(x), ffn_input)

    def _continue_window(self, inputs: Inputs, state: Mapping[str, Tensor]) -> Encoding:
        """Read the next inputs of a window. The state is `place`, int64 [1], and the memory of each
        block.

        An empty state is the start of the window.
        """
        embedded = inputs.embedded
        length = embedded.shape[1]
        place = int(state["place"]) if state else 0
        positions = self.positions(length, embedded.device, place)
        x = self.dropout(embedded * self.scale + positions)

        memories = [cast(TransformerBlock, block).begin(x) for block in self.blocks]
        if state:
            memories = of_blocks(state, memories)
        for number, block in enumerate(self.blocks):
            memory = memories[number]
            x, ffn_input, memories[number] = cast(TransformerBlock, block).continue_window(
                x, inputs, memory, place
            )

        # The place stays on the CPU, so that reading it does not wait for a GPU.
        place_after = torch.tensor([place + length])
        after: dict[str, Tensor] = {"place": place_after} | in_blocks(memories)
        return Encoding(self.norm(x), ffn_input, after)
