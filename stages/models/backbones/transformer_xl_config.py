"""Settings of the Transformer-XL; free of torch."""

from typing import Annotated, Literal, NamedTuple, cast

from pydantic import Field

from stages.config import OneOf, Spelling
from stages.models.backbones.segmented_config import DistancesConfig
from stages.models.config import Reads, Size
from stages.models.layers import STREAM_ATTENTION
from stages.models.layers.settings import (
    FEED_FORWARD_KEYS,
    AttentionConfig,
    BlockMemory,
    LookupSettings,
    RelativeSettings,
    StreamAttentionSettings,
)


class TransformerXLConfig(DistancesConfig, AttentionConfig):
    """A pre-norm Transformer that reads a stream in segments and carries hidden states from one to the next.

    Source: Dai et al. 2019 (arXiv:1901.02860).
    """

    backbone: Literal["transformer-xl"] = "transformer-xl"
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """Positions before its segment that an input of a Transformer-XL attends to, M; None: the segment length."""
    attention: Annotated[StreamAttentionSettings, OneOf(STREAM_ATTENTION, by="name")] = RelativeSettings()
    """The attention layer of the blocks, which may remember more than cached inputs."""

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS, documents=self.attention.reads_documents or self.lookup.reads_documents)

    def memory_spec(self, block: int, context: int) -> NamedTuple:
        attention = cast(StreamAttentionSettings, self.layer_in("attention", block))
        lookup = cast(LookupSettings, self.layer_in("lookup", block))
        return BlockMemory(attention.memory_spec(self, context), lookup.memory_spec(self))
