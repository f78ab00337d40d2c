"""Settings of what stands in a place of a block; free of torch."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from stages.config import Settings
from stages.models.config import Size, StateArray

if TYPE_CHECKING:
    from stages.models.layers.config import AttentionConfig


class SublayerSettings(Settings):
    """Of one registered layer; the field `name` tells which."""

    if TYPE_CHECKING:  # a field of each layer
        name: str
    layers: Annotated[tuple[Size, ...], Field(min_length=1)] | None = None
    """Blocks that have it, counted from 1; others have what is usual in that place. None: all."""


class StreamAttentionSettings(SublayerSettings):
    """Of an attention layer that reads a stream, and may remember what lies before its cached inputs."""

    @abstractmethod
    def memory_spec(self, model: "AttentionConfig", context: int) -> tuple[StateArray, ...]:
        """The arrays [1, 1, …] that one layer remembers of one stream at the most, read in segments of `context`."""
