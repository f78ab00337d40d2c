"""Settings of the layers of a block, and of blocks that several backbones share; free of torch."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from math import isqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, cast

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from stages.config import OneOf, Settings
from stages.models.config import BackboneConfig, Probability, Size
from stages.models.layers import FEED_FORWARD, LOOKUP


def _each_once(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Sort block numbers, and drop repeats, so that equal sets are equal settings."""
    return tuple(sorted(set(blocks)))


class SublayerSettings(Settings):
    """Settings of a registered layer, which the field `name` selects."""

    in_pieces: ClassVar[bool] = False
    """Whether it can also read a window in pieces, with a memory of its earlier positions."""

    if TYPE_CHECKING:  # a field of each layer
        name: str
    layers: Annotated[tuple[Size, ...], Field(min_length=1), AfterValidator(_each_once)] | None = (
        None
    )
    """Blocks that have it, counted from 1; others have what is usual in that place. None: the usual
    blocks.
    """

    def usual_blocks(self, blocks: int) -> tuple[int, ...] | None:
        """Blocks that have the layer by default, in a model with `blocks` blocks; None: all."""
        return None

    def stored_activations(self, model: "AttentionConfig") -> int:
        """Number of values that training stores for what one position reads from the layer's
        memory.
        """
        return 0

    def remembers(self, model: "AttentionConfig", context: int) -> bool:
        """Whether it has memory besides cached inputs, for segments of `context` inputs."""
        return False

    @property
    def reads_documents(self) -> bool:
        """Whether its memory ends at document boundaries: if the setting `scope` is `document`."""
        return getattr(self, "scope", "stream") == "document"


class Nothing(NamedTuple):
    """Empty memory, of a layer without memory."""


class BlockMemory(NamedTuple):
    """Memories of a block's layers, or their shapes."""

    attention: Any
    lookup: Any


def present(memory: NamedTuple, prefix: str = "") -> dict[str, Any]:
    """Parts of a memory by name, except those that are None; a block's lookup has the prefix
    `lookup.`.
    """
    if isinstance(memory, BlockMemory):
        return present(memory.attention, prefix) | present(memory.lookup, f"{prefix}lookup.")
    return {prefix + name: part for name, part in memory._asdict().items() if part is not None}


def memory_of(parts: Mapping[str, Any], like: Any, prefix: str = "") -> Any:
    """Memory from its parts, the inverse of `present`; `like` is any memory of the same class."""
    if isinstance(like, BlockMemory):
        return BlockMemory(
            memory_of(parts, like.attention, prefix),
            memory_of(parts, like.lookup, f"{prefix}lookup."),
        )
    return type(like)(
        **{name: parts[prefix + name] for name in like._fields if prefix + name in parts}
    )


def in_blocks(memories: Iterable[NamedTuple]) -> dict[str, Any]:
    """Parts of the memories of a network's blocks, in order, by name: `block1.keys`."""
    parts: dict[str, Any] = {}
    for number, memory in enumerate(memories, 1):
        parts |= present(memory, f"block{number}.")
    return parts


def of_blocks(parts: Mapping[str, Any], like: Iterable[NamedTuple]) -> list[Any]:
    """Memories of a network's blocks from their parts, the inverse of `in_blocks`."""
    return [memory_of(parts, memory, f"block{number}.") for number, memory in enumerate(like, 1)]


class StreamAttentionSettings(SublayerSettings):
    """Settings of an attention layer that reads a stream, and may have more memory than its cached
    inputs.
    """

    @abstractmethod
    def memory_spec(self, model: "AttentionConfig", context: int) -> NamedTuple:
        """Maximum shapes of the layer's memory for one stream: a `StateArray` [1, …] for each
        tensor.

        Args:
            model: settings of the model.
            context: number of inputs in a segment.

        Raises: UsageError if it cannot read such segments.
        """

    def remembers(self, model: "AttentionConfig", context: int) -> bool:
        return any(array.nbytes for array in self.memory_spec(model, context))


class LookupSettings(SublayerSettings):
    """Settings of a layer that looks up the latest tokens, and may keep some of them in memory."""

    @property
    def host_table(self) -> tuple[int, int]:
        """Shape of a block's table that stays in the host's memory and gets sparse updates: rows,
        and width.
        """
        return 0, 0

    def memory_spec(self, model: "AttentionConfig") -> NamedTuple:
        """Maximum shapes of the layer's memory for one stream: a `StateArray` [1, …] for each
        tensor.
        """
        return Nothing()


class NoLookupSettings(LookupSettings):
    """No lookup: the residual stream stays as it is."""

    name: Literal["none"] = "none"


class SoftmaxSettings(SublayerSettings):
    """Causal self-attention in a window; its sizes are the block's."""

    in_pieces: ClassVar[bool] = True

    name: Literal["softmax"] = "softmax"


class DenseSettings(SublayerSettings):
    """Two linear layers; their width and activation are the block's."""

    name: Literal["dense"] = "dense"


class RelativeSettings(StreamAttentionSettings):
    """Attention by content and by distance (Transformer-XL); its sizes are the block's."""

    name: Literal["relative"] = "relative"

    def memory_spec(self, model: "AttentionConfig", context: int) -> Nothing:
        """No memory: it reads only the cached inputs, which every block has."""
        return Nothing()


Place = Literal["lookup", "attention", "feed_forward"]
PLACES: tuple[Place, Place, Place] = ("lookup", "attention", "feed_forward")
"""Settings that choose the layers of a block, in the order of the layers."""


FEED_FORWARD_KEYS = ("ffn-input", "hidden")
"""Keys of models with feed-forward layers; the input of the last one is the better key (Khandelwal
et al. 2020).
"""


def divisors(number: int) -> str:
    """List the divisors of a number.

    >>> divisors(12)
    '1, 2, 3, 4, 6, 12'
    """
    # Each divisor up to the root has a partner above it.
    small = [factor for factor in range(1, isqrt(number) + 1) if number % factor == 0]
    large = [number // factor for factor in small]
    return ", ".join(map(str, sorted({*small, *large})))


class BlockSizes(BackboneConfig):
    """Sizes of pre-norm blocks with self-attention and a feed-forward layer."""

    layers: Size = 2
    heads: Size = 4
    ffn_width: Size = 512
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    """Inside the feed-forward block, after its activation."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.heads}: heads may be {divisors(self.width)}"
            )
        return self


class AttentionConfig(BlockSizes):
    """Sizes of blocks, and settings of their lookup, attention and feed-forward layers."""

    if TYPE_CHECKING:  # a field of each backbone, whose kind of attention it chooses
        attention: SublayerSettings
    lookup: Annotated[LookupSettings, OneOf(LOOKUP, by="name")] = Field(
        default_factory=NoLookupSettings
    )
    """The layer of the blocks that looks the latest tokens up."""
    feed_forward: Annotated[SublayerSettings, OneOf(FEED_FORWARD, by="name")] = Field(
        default_factory=DenseSettings
    )
    """The feed-forward layer of the blocks."""

    @field_validator("attention", "lookup", "feed_forward", check_fields=False)
    @classmethod
    def _complete_blocks(cls, layer: SublayerSettings, info: ValidationInfo) -> SublayerSettings:
        """Name the usual blocks of a layer, so that stored settings say which blocks have it."""
        # Missing if the number of layers is not valid, which has an error of its own.
        blocks = info.data.get("layers")
        if layer.layers is not None or blocks is None:
            return layer
        return layer.model_copy(update={"layers": layer.usual_blocks(blocks)})

    @model_validator(mode="after")
    def _blocks_exist(self) -> Self:
        for place in PLACES:
            blocks = getattr(self, place).layers or ()
            for block in blocks:
                if block > self.layers:
                    raise ValueError(
                        f"{place}.layers names block {block}, but the last of them is {self.layers}"
                    )
        return self

    def layer_in(self, place: Place, block: int) -> SublayerSettings:
        """Settings of the layer at a place of a block; blocks count from 1."""
        chosen = self.layer_settings(place)
        if chosen.layers is None or block in chosen.layers:
            return chosen
        return cast(
            SublayerSettings, type(self).model_fields[place].get_default(call_default_factory=True)
        )

    def layer_settings(self, place: str) -> SublayerSettings:
        return cast(SublayerSettings, getattr(self, place))

    def blocks_with(self, place: str) -> tuple[int, ...]:
        return self.layer_settings(place).layers or tuple(range(1, self.layers + 1))

    @property
    def host_table(self) -> tuple[int, int]:
        rows, width = self.lookup.host_table
        # No list of blocks: a model that is then refused for its size may have very many.
        return rows * len(self.lookup.layers or range(self.layers)), width

    def remembers(self, context: int) -> bool:
        return self.attention.remembers(self, context)
