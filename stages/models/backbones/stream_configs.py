"""Settings of networks that read a stream and carry a state; free of torch."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, cast

from pydantic import Field, model_validator

from stages.config import OneOf, Spelling
from stages.errors import UsageError
from stages.examples import Way
from stages.examples.cutting import WindowSettings
from stages.models import BACKBONES
from stages.models.config import BackboneConfig, Probability, Reads, Size, StateArray
from stages.models.layers import STREAM_ATTENTION
from stages.models.layers.settings import (
    FEED_FORWARD_KEYS,
    AttentionConfig,
    BlockMemory,
    BlockSizes,
    LookupSettings,
    Nothing,
    RelativeSettings,
    StreamAttentionSettings,
    divisors,
    in_blocks,
)


class LSTMConfig(BackboneConfig):
    """Long short-term memory, which carries its state along a stream."""

    way: ClassVar[Way] = "stream"

    backbone: Literal["lstm"] = "lstm"
    layers: Size = 1

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Shapes of h and c of all layers."""
        return dict.fromkeys(("h", "c"), StateArray((self.layers, 1, self.width)))


class SegmentedConfig(BackboneConfig):
    """A model whose blocks attend to cached inputs at the M positions before a segment, and may
    have more memory.
    """

    way: ClassVar[Way] = "stream"
    left_open: ClassVar[tuple[str, ...]] = (*BackboneConfig.left_open, "mem_length")

    if TYPE_CHECKING:  # fields of each backbone, which documents their meaning
        layers: int
        segment_length: int | None
        mem_length: int | None

    @abstractmethod
    def memory_spec(self, block: int, context: int) -> NamedTuple:
        """Shapes of a block's memory, without the cached inputs; blocks count from 1.

        Raises: UsageError if it cannot read segments of `context` inputs.
        """

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Shapes of the cached inputs of each layer, of the place in the segment, and of the memory
        of each block.

        At most, the M positions before a segment are cached, and all but the last of the segment.
        """
        assert self.mem_length is not None, "the stage fills it in"
        cached = StateArray((self.layers, 1, self.mem_length + context - 1, self.width))
        memories = in_blocks(self.memory_spec(block + 1, context) for block in range(self.layers))
        return {"cached": cached, "place": StateArray((1,), "int64")} | memories

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Lengths of segments and memory, checked by all layers.

        Raises: UsageError if a layer cannot read such segments.
        """
        memory = segment_length if self.mem_length is None else self.mem_length
        lengths = {"segment_length": segment_length, "mem_length": memory}
        # Called only for its errors: each layer checks whether it can read such segments.
        self.model_copy(update=lengths).state_spec(segment_length)
        return lengths

    def reading(self, windows: WindowSettings) -> Self:
        memory = self.mem_length if windows.mem_length is None else windows.mem_length
        lengths: dict[str, Any] = {"segment_length": windows.context, "mem_length": memory}
        if windows.long_length is not None:
            attention: Any = getattr(self, "attention", None)
            lengths["attention"] = attention.model_copy(update={"long_length": windows.long_length})
        read = self.model_copy(update=lengths)
        # Called only for its errors, as in `sizes`.
        read.state_spec(windows.context)
        return read


class DistancesConfig(SegmentedConfig):
    """A segmented model with relative positions."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.width % 2:
            raise ValueError(
                f"relative positions need an even width, not {self.width}: {self.width + 1} is"
            )
        return self


class TransformerXLConfig(DistancesConfig, AttentionConfig):
    """A pre-norm Transformer that reads a stream in segments, and carries hidden states between
    them.

    Source: Dai et al. 2019 (arXiv:1901.02860).
    """

    backbone: Literal["transformer-xl"] = "transformer-xl"
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """M, positions before a segment that its inputs attend to in a Transformer-XL; None: the
    segment length.
    """
    attention: Annotated[StreamAttentionSettings, OneOf(STREAM_ATTENTION, by="name")] = Field(
        default_factory=RelativeSettings
    )
    """The attention layer of the blocks, which may remember more than cached inputs."""

    @property
    def reads(self) -> Reads:
        return Reads(
            FEED_FORWARD_KEYS,
            documents=self.attention.reads_documents or self.lookup.reads_documents,
        )

    @property
    def learns_to_write(self) -> bool:
        # This loads torch, and is asked only where a model is about to be trained.
        keeps_graph: bool = STREAM_ATTENTION.load(self.attention.name).keeps_graph
        return keeps_graph

    def memory_spec(self, block: int, context: int) -> NamedTuple:
        attention = cast(StreamAttentionSettings, self.layer_in("attention", block))
        lookup = cast(LookupSettings, self.layer_in("lookup", block))
        return BlockMemory(attention.memory_spec(self, context), lookup.memory_spec(self))


class MemoryTransformerConfig(DistancesConfig, BlockSizes):
    """A Transformer-XL with memory tokens: learned rows that read earlier positions, for the
    segment to read.

    Source: Burtsev et al. 2020 (arXiv:2006.11527), whose models are encoders; these are decoders.
    """

    backbone: Literal["memory-transformer"] = "memory-transformer"
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """M, positions before a segment that its memory tokens read; None: the segment length."""
    memory_tokens: Annotated[int, Field(ge=0, lt=2**31)] = 20
    """m; they begin anew with every segment."""
    memory_rows: Literal["shared", "controller", "bottleneck"] = "shared"
    """The weights that compute them: those of tokens (MemTransformer) or their own (MemCtrl,
    MemBottleneck).

    With `bottleneck` tokens see nothing before their segment but what these rows say of it.
    """
    shared_controller: bool = False
    """Whether the own weights are the same in all blocks."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.shared_controller and self.memory_rows == "shared":
            raise ValueError(
                "shared_controller is of memory_rows controller and bottleneck: leave it out"
            )
        if self.memory_tokens and self.layers < 2 and self.memory_rows != "bottleneck":
            raise ValueError(
                f"memory tokens read in one block what tokens read of them in the next: layers {self.layers} are too "
                "few, 2 or more fit, or memory_rows bottleneck"
            )
        return self

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS)

    def memory_spec(self, block: int, context: int) -> Nothing:
        """Blocks carry nothing but cached inputs.

        Raises: UsageError if there are memory tokens, but no earlier positions for them to read.
        """
        if self.memory_tokens and not self.mem_length:
            raise UsageError(
                "Memory tokens read the positions before a segment: --mem-length must be 1 or more (or "
                "model.memory_tokens 0)."
            )
        return Nothing()


class Cell(NamedTuple):
    """Memory of an SRU++ layer: c after the latest position, [B, d]."""

    c: Any


class SRUPlusPlusConfig(SegmentedConfig):
    """Simple recurrent units with attention for their inputs; reads a stream, and needs no position
    embeddings.

    Source: Lei 2021 (arXiv:2102.12459).
    """

    backbone: Literal["sru++"] = "sru++"
    layers: Size = 4
    projection: Size | None = None
    """Width p of attention, and of what a layer without attention projects to; None: a quarter of
    the width.
    """
    heads: Size = 1
    attention_every: Size = 1
    """Every how many layers have attention; larger than `layers`: none has."""
    attention_dropout: Probability = 0.0
    highway_bias: float = -2.0
    """Where the bias of the gate r begins, of h = r c + (1 - r) x: below 0 a layer begins by
    passing on its input.
    """
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """M, positions before a segment that its inputs attend to; None: the segment length."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.projected < 1 or self.projected % self.heads:
            raise ValueError(
                f"heads {self.heads} do not divide the width {self.projected} of attention (projection, or a quarter "
                f"of width): heads may be {divisors(self.projected) or 'none: choose a width of 4 or more'}"
            )
        return self

    @property
    def projected(self) -> int:
        """Width p of attention; by default a quarter of the model's width."""
        return self.width // 4 if self.projection is None else self.projection

    def attends(self, block: int) -> bool:
        """Whether a layer has attention; layers count from 1."""
        return block % self.attention_every == 0

    def memory_spec(self, block: int, context: int) -> Cell:
        return Cell(StateArray((1, self.width)))


class MemformerConfig(BlockSizes):
    """An encoder that reads the previous segment and updates a memory of slots, and a decoder for
    the segment.

    `layers` are the decoder's. Source: Wu et al. 2022 (arXiv:2010.06891).
    """

    way: ClassVar[Way] = "stream"

    backbone: Literal["memformer"] = "memformer"
    encoder_layers: Size = 2
    slots: Annotated[int, Field(ge=0, lt=2**31)] = 32
    """k, vectors of memory; 0: the decoder knows the segment before, and nothing else."""
    summary_tokens: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Learned rows that the encoder reads behind a segment, to sum it up (the paper's
    classification tokens).
    """
    temperature: Annotated[float, Field(gt=0)] = 0.25
    """Divisor of the scores of slots: the smaller, the fewer rows a slot takes from."""
    forgetting: Annotated[float, Field(gt=0)] = 0.1
    """Norm that the biases of slots begin with: the larger, the sooner a slot forgets what it is
    not given again.
    """
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS)

    @property
    def learns_to_write(self) -> bool:
        return self.slots > 0

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Shapes of the slots, of the previous segment (or its encoding), and of the current
        segment so far.
        """
        before = context + self.summary_tokens if context > 1 else 1
        past = StateArray((1, self.heads, context - 1, self.width // self.heads))
        spec = {
            "memory": StateArray((1, self.slots, self.width)),
            "before": StateArray((1, before, self.width)),
            "segment": StateArray((1, context - 1, self.width)),
        }
        return spec | {
            f"block{n}.past.{part}": past
            for n in range(1, self.layers + 1)
            for part in ("keys", "values")
        }

    def sizes(self, segment_length: int) -> dict[str, Any]:
        return {"segment_length": segment_length}

    def reading(self, windows: WindowSettings) -> Self:
        """The same model: segments keep their length.

        Raises: UsageError for another segment length: a memformer learns a vector for each
        position of a segment.
        """
        if windows.context != self.segment_length:
            raise UsageError(
                f"A memformer reads segments of the length that it was trained with: --context {self.segment_length}, "
                f"not {windows.context}."
            )
        return self


def carrying_backbones() -> list[str]:
    """Names of the backbones that have the setting `mem_length`."""
    return [
        name for name in BACKBONES.names() if "mem_length" in BACKBONES.settings(name).model_fields
    ]


def require_carried(settings: Mapping[str, Any], backbone: str, *, other: bool) -> None:
    """Check that a model has a `mem_length`.

    Raises: UsageError if `mem_length` is given for a backbone that does not have it.

    Args:
        settings: settings of a model that a user names.
        backbone: name of the backbone.
        other: whether the user may choose another backbone, which the message then suggests.
    """
    able = carrying_backbones()
    if "mem_length" in settings and backbone not in able:
        instead = f", or add --backbone {able[0]}" if other else ""
        raise UsageError(
            f"The backbone {backbone!r} carries no positions: leave --mem-length out{instead}."
        )


def remembering_layers() -> list[str]:
    """Names of the attention layers that have the setting `long_length`."""
    return [
        name
        for name in STREAM_ATTENTION.names()
        if "long_length" in STREAM_ATTENTION.settings(name).model_fields
    ]
