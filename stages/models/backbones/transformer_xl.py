"""Transformer-XL: segments attend to cached hidden states of earlier positions, with relative
positions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stages.models.backbones.segmented import SegmentedByDistance, StreamBlock
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.layers import STREAM_ATTENTION
from stages.models.layers.settings import BlockMemory
from stages.models.layers.stacks import ChosenLayers, initialize_layers
from stages.models.layers.sublayer import Attended, SegmentContext, StreamInputs


class StreamTransformerBlock(ChosenLayers, StreamBlock):
    """A pre-norm block: lookup, attention, feed-forward."""

    def __init__(self, config: TransformerXLConfig, number: int) -> None:
        super().__init__(config, number, STREAM_ATTENTION)
        self.keeps_graph = self.attention.keeps_graph

    def begin(self, x: Tensor) -> NamedTuple:
        return BlockMemory(self.attention.begin(x), self.lookup.begin(x))

    def apply_lookup(
        self, x: Tensor, passage: SegmentContext, memory: BlockMemory
    ) -> tuple[Tensor, BlockMemory]:
        x, after = self.look_up(x, passage.tokens, passage.document_offset, memory.lookup)
        return x, memory._replace(lookup=after)

    def forward(
        self, past: Tensor, x: Tensor, passage: SegmentContext, memory: BlockMemory
    ) -> tuple[Tensor, Tensor, Attended[BlockMemory]]:
        """Cached inputs [B, m, d] and inputs [B, n, d] -> residual stream, feed-forward input,
        result of attention.
        """
        raw = torch.cat((past, x), 1)
        inputs = StreamInputs(raw, self.attention_norm(raw), self.attention_norm)
        # As in `look_up`: offsets that only a lookup asked for are not the attention's.
        if not self.attention_reads_documents:
            passage = passage._replace(document_offset=None)

        attended: Attended[Any] = self.attention(inputs, passage, memory.attention)
        x = x + self.dropout(attended.hidden)
        ffn_input = self.ffn_norm(x)
        hidden = x + self.dropout(self.ffn(ffn_input))

        memory_after = memory._replace(attention=attended.memory)
        return hidden, ffn_input, attended._replace(memory=memory_after)


class TransformerXL(SegmentedByDistance):
    """Segment-level recurrence with relative positions; attention layers may add memory of older
    positions.

    Source: Dai et al. 2019 (arXiv:1901.02860), section 3.
    """

    def build_blocks(self, config: TransformerXLConfig) -> list[StreamBlock]:
        blocks = [StreamTransformerBlock(config, number + 1) for number in range(config.layers)]
        initialize_layers(blocks, config.layers)
        return [*blocks]

    def compiled_parts(self) -> list[nn.Module]:
        return list(self.blocks)  # outside of blocks, shapes depend on the state
