"""Settings of the blocks that several backbones are made of; free of torch."""

from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

from pydantic import model_validator

from stages.config import OneOf
from stages.models.config import BackboneConfig, Probability, Size
from stages.models.layers import FEED_FORWARD
from stages.models.layers.dense.settings import DenseSettings
from stages.models.layers.settings import StreamAttentionSettings, SublayerSettings

Place = Literal["attention", "feed_forward"]
PLACES: tuple[Place, Place] = ("attention", "feed_forward")
"""Settings that choose the layers of a block."""


class AttentionConfig(BackboneConfig):
    """Blocks of self-attention and of a feed-forward layer, each on the normalized residual stream."""

    if TYPE_CHECKING:  # a field of each backbone, whose kind of attention it chooses
        attention: SublayerSettings
    layers: Size = 2
    heads: Size = 4
    ffn_width: Size = 512
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    """Inside the feed-forward block, after its activation."""
    feed_forward: Annotated[SublayerSettings, OneOf(FEED_FORWARD, by="name")] = DenseSettings()
    """The feed-forward layer of the blocks."""

    @property
    def keys(self) -> tuple[str, ...]:
        return "ffn-input", "hidden"

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self

    @model_validator(mode="after")
    def _usual_blocks_are_named(self) -> Self:
        for place in PLACES:
            chosen = getattr(self, place)
            if chosen.layers is None and (usual := chosen.usual_blocks(self.layers)) is not None:
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
        return cast(SublayerSettings, cls.model_fields[place].default)


def remembers(model: BackboneConfig, context: int) -> bool:
    """Whether attention layers carry more than cached inputs from segment to segment of `context` inputs."""
    if not isinstance(model, AttentionConfig) or not isinstance(model.attention, StreamAttentionSettings):
        return False
    return any(array.nbytes for array in model.attention.memory_spec(model, context))
