"""Settings of what stands in a place of a block; free of torch."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, Field

from stages.config import Settings
from stages.models.config import Size

if TYPE_CHECKING:
    from stages.models.layers.config import AttentionConfig


def _each_once(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """In order, however they were named: the same layers are the same model."""
    return tuple(sorted(set(blocks)))


class SublayerSettings(Settings):
    """Settings of a registered layer, which the field `name` selects."""

    if TYPE_CHECKING:  # a field of each layer
        name: str
    layers: Annotated[tuple[Size, ...], Field(min_length=1), AfterValidator(_each_once)] | None = None
    """Blocks that have it, counted from 1; others have what is usual in that place. None: the usual blocks."""

    def usual_blocks(self, blocks: int) -> tuple[int, ...] | None:
        """The blocks that have it where none are named, in a model of so many; None: all."""
        return None


class Nothing(NamedTuple):
    """Memory of a layer that has none."""


def present(memory: NamedTuple) -> dict[str, Any]:
    """The parts of a memory by name, less those that are None."""
    return {name: part for name, part in memory._asdict().items() if part is not None}


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

    @property
    def reads_documents(self) -> bool:
        """Whether that ends where a document does, as a setting `scope` may say."""
        return getattr(self, "scope", "stream") == "document"

    def lengthened(self, length: int) -> Self:
        """The same layer that remembers so much; only of one that has such a setting."""
        assert "long_length" in type(self).model_fields, "it has no length to change"
        return self.model_copy(update={"long_length": length})
