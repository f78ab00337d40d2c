"""Settings of the layers of a block, and of the blocks that several backbones are made of; free of torch."""

from abc import abstractmethod
from collections.abc import Mapping
from math import isqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, cast

from pydantic import AfterValidator, Field, model_validator

from stages.config import OneOf, Settings
from stages.models.config import BackboneConfig, Probability, Size
from stages.models.layers import FEED_FORWARD, LOOKUP


def _each_once(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of blocks in order, however they were named: the same layers are the same model."""
    return tuple(sorted(set(blocks)))


class SublayerSettings(Settings):
    """Settings of a registered layer, which the field `name` selects."""

    recurrent: ClassVar[bool] = False
    """Whether it reads a window in pieces, too: what it needs of the positions before does not grow with them."""

    if TYPE_CHECKING:  # a field of each layer
        name: str
    layers: Annotated[tuple[Size, ...], Field(min_length=1), AfterValidator(_each_once)] | None = None
    """Blocks that have it, counted from 1; others have what is usual in that place. None: the usual blocks."""

    def usual_blocks(self, blocks: int) -> tuple[int, ...] | None:
        """The blocks that have it where none are named, in a model of so many; None: all."""
        return None

    @property
    def reads_documents(self) -> bool:
        """Whether what it remembers ends where a document does, as a setting `scope` may say."""
        return getattr(self, "scope", "stream") == "document"


class Nothing(NamedTuple):
    """Memory of a layer that has none."""


class BlockMemory(NamedTuple):
    """Memories of a block's layers, or their shapes."""

    attention: Any
    lookup: Any


LOOKUP_PREFIX = "lookup."


def present(memory: NamedTuple) -> dict[str, Any]:
    """The parts of a memory by name, less those that are None; of a block's lookup `lookup.NAME`."""
    if isinstance(memory, BlockMemory):
        looked_up = present(memory.lookup).items()
        return present(memory.attention) | {f"{LOOKUP_PREFIX}{name}": part for name, part in looked_up}
    return {name: part for name, part in memory._asdict().items() if part is not None}


def memory_of(parts: Mapping[str, Any], like: Any, prefix: str = "") -> Any:
    """The memory that `present` gave the parts of; `like`: any of its kind; `prefix`: of the names of its parts."""
    if isinstance(like, BlockMemory):
        return BlockMemory(memory_of(parts, like.attention), memory_of(parts, like.lookup, LOOKUP_PREFIX))
    return type(like)(**{name: parts[prefix + name] for name in like._fields if prefix + name in parts})


class StreamAttentionSettings(SublayerSettings):
    """Settings of an attention layer that reads a stream, and may remember more than its cached inputs."""

    @abstractmethod
    def memory_spec(self, model: "AttentionConfig", context: int) -> NamedTuple:
        """The layer's memory with a `StateArray` [1, …] for each tensor: the largest of one stream.

        Args:
            context: inputs of a segment.

        Raises: UsageError if it cannot read such segments.
        """

    def taken_numbers(self, model: "AttentionConfig") -> int:
        """Numbers that training holds of what one position takes from the memory of one layer."""
        return 0


class LookupSettings(SublayerSettings):
    """Settings of a layer that looks the latest tokens up, and may remember some of them."""

    @property
    def host_table(self) -> tuple[int, int]:
        """Rows of a block's tables that stay in the host's memory and learn by rows, and numbers of each."""
        return 0, 0

    def memory_spec(self, model: "AttentionConfig") -> NamedTuple:
        """The layer's memory with a `StateArray` [1, …] for each tensor: the largest of one stream."""
        return Nothing()


class NoLookupSettings(LookupSettings):
    """Nothing is looked up: the residual stream goes on as it is."""

    name: Literal["none"] = "none"


class SoftmaxSettings(SublayerSettings):
    """Every position of a window attends to itself and those before it; its sizes are the block's."""

    name: Literal["softmax"] = "softmax"


class DenseSettings(SublayerSettings):
    """Two linear layers; their width and activation are the block's."""

    name: Literal["dense"] = "dense"


class RelativeSettings(StreamAttentionSettings):
    """Attention by content and by distance (Transformer-XL); its sizes are the block's."""

    name: Literal["relative"] = "relative"

    def memory_spec(self, model: "AttentionConfig", context: int) -> Nothing:
        """Nothing but the cached inputs, which every block has."""
        return Nothing()


Place = Literal["lookup", "attention", "feed_forward"]
PLACES: tuple[Place, Place, Place] = ("lookup", "attention", "feed_forward")
"""Settings that choose the layers of a block, in their order."""


FEED_FORWARD_KEYS = ("ffn-input", "hidden")
"""Keys of such blocks: the input of the last feed-forward layer is the better one (Khandelwal et al. 2020)."""


def divisors(number: int) -> str:
    """The numbers that divide one.

    >>> divisors(12)
    '1, 2, 3, 4, 6, 12'
    """
    small = [factor for factor in range(1, isqrt(number) + 1) if number % factor == 0]
    return ", ".join(map(str, sorted({*small, *(number // factor for factor in small)})))


class BlockSizes(BackboneConfig):
    """Sizes of blocks of self-attention and of a feed-forward layer, each on the normalized residual stream."""

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
    """Sizes of blocks, and the layers at each of their places."""

    if TYPE_CHECKING:  # a field of each backbone, whose kind of attention it chooses
        attention: SublayerSettings
    lookup: Annotated[LookupSettings, OneOf(LOOKUP, by="name")] = Field(default_factory=NoLookupSettings)
    """The layer of the blocks that looks the latest tokens up."""
    feed_forward: Annotated[SublayerSettings, OneOf(FEED_FORWARD, by="name")] = Field(default_factory=DenseSettings)
    """The feed-forward layer of the blocks."""

    @model_validator(mode="after")
    def _usual_blocks_are_named(self) -> Self:
        for place in PLACES:
            chosen = getattr(self, place)
            if chosen.layers is None and (usual := chosen.usual_blocks(self.layers)) is not None:
                # Settings are frozen once made; here they are still being made.
                object.__setattr__(self, place, chosen.model_copy(update={"layers": usual}))
        return self

    @model_validator(mode="after")
    def _layers_exist(self) -> Self:
        for place in PLACES:
            beyond = [block for block in getattr(self, place).layers or () if block > self.layers]
            if beyond:
                raise ValueError(f"{place}.layers names block {beyond[0]}, but the last of them is {self.layers}")
        return self

    def layer_in(self, place: Place, block: int) -> SublayerSettings:
        """Settings of the layer in a place of a block; blocks count from 1."""
        chosen = cast(SublayerSettings, getattr(self, place))
        return chosen if chosen.layers is None or block in chosen.layers else self._usual(place)

    def blocks_with(self, place: Place) -> tuple[int, ...]:
        """The blocks, counted from 1, that have what was chosen for a place."""
        chosen = cast(SublayerSettings, getattr(self, place))
        return chosen.layers or tuple(range(1, self.layers + 1))

    @classmethod
    def _usual(cls, place: Place) -> SublayerSettings:
        return cast(SublayerSettings, cls.model_fields[place].get_default(call_default_factory=True))


def remembers(model: BackboneConfig, context: int) -> bool:
    """Whether attention layers carry more than cached inputs from segment to segment of `context` inputs."""
    if not isinstance(model, AttentionConfig) or not isinstance(model.attention, StreamAttentionSettings):
        return False
    return any(array.nbytes for array in model.attention.memory_spec(model, context))


def reads_in_pieces(model: BackboneConfig) -> bool:
    """Whether it reads a window in pieces, too, each from the state after the one before; `{}` begins the window."""
    if not isinstance(model, AttentionConfig):
        return False
    return all(model.layer_in("attention", block + 1).recurrent for block in range(model.layers))
