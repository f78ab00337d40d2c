"""Settings of the Transformer-XL; free of torch."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

from pydantic import Field, model_validator

from stages.config import OneOf, Spelling
from stages.errors import UsageError
from stages.examples import Way
from stages.models.config import BackboneConfig, Reads, Size, StateArray
from stages.models.layers import STREAM_ATTENTION
from stages.models.layers.settings import (
    FEED_FORWARD_KEYS,
    AttentionConfig,
    RelativeSettings,
    StreamAttentionSettings,
    present,
)
from stages.models.windows import WindowSettings


class TransformerXLConfig(AttentionConfig):
    """A pre-norm Transformer that reads a stream in segments and carries hidden states from one to the next.

    Source: Dai et al. 2019 (arXiv:1901.02860).
    """

    way: ClassVar[Way] = "stream"
    left_open: ClassVar[tuple[str, ...]] = (*BackboneConfig.left_open, "mem_length")

    backbone: Literal["transformer-xl"] = "transformer-xl"
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """Positions before its segment that an input of a Transformer-XL attends to, M; None: the segment length."""
    attention: Annotated[StreamAttentionSettings, OneOf(STREAM_ATTENTION, by="name")] = RelativeSettings()
    """The attention layer of the blocks, which may remember more than cached inputs."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.width % 2:
            raise ValueError(f"relative positions need an even width, not {self.width}")
        return self

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS, documents=self.attention.reads_documents)

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Inputs of each layer: M positions before a segment, and all but the last of its own; the place in it.

        Then the memory of each block's attention layer, by the block's number.
        """
        assert self.mem_length is not None, "the stage fills it in"
        cached = StateArray((self.layers, 1, self.mem_length + context - 1, self.width))
        spec = {"cached": cached, "place": StateArray((1,), "int64")}
        for block in range(1, self.layers + 1):
            spec |= in_block(block, present(self.memory_spec(block, context)))
        return spec

    def memory_spec(self, block: int, context: int) -> NamedTuple:
        """Shapes of what a block's attention layer keeps besides cached inputs; blocks count from 1.

        Raises: UsageError if it cannot read such segments.
        """
        attention = cast(StreamAttentionSettings, self.layer_in("attention", block))
        return attention.memory_spec(self, context)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError if the model has segments of another length, or layers that cannot read such ones."""
        if self.segment_length not in (None, segment_length):
            raise UsageError(
                f"model.segment_length is {self.segment_length}, but segments of training have {segment_length} "
                "tokens; leave it out."
            )
        memory = segment_length if self.mem_length is None else self.mem_length
        lengths = {"segment_length": segment_length, "mem_length": memory}
        self.model_copy(update=lengths).state_spec(segment_length)
        return lengths

    def reading(self, windows: WindowSettings) -> Self:
        memory = self.mem_length if windows.mem_length is None else windows.mem_length
        lengths: dict[str, Any] = {"segment_length": windows.context, "mem_length": memory}
        if windows.long_length is not None:
            lengths["attention"] = self.attention.lengthened(windows.long_length)
        read = self.model_copy(update=lengths)
        read.state_spec(windows.context)
        return read


Part = TypeVar("Part")


def in_block(block: int, parts: Mapping[str, Part]) -> dict[str, Part]:
    """Parts of a block's memory, as the state of the whole network names them."""
    return {f"block{block}.{name}": part for name, part in parts.items()}
