"""Settings that backbones share which read a stream in segments and cache inputs of their layers; free of torch."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pydantic import model_validator

from stages.examples import Way
from stages.models.config import BackboneConfig, StateArray, require_segments
from stages.models.layers.settings import present
from stages.models.windows import WindowSettings


class SegmentedConfig(BackboneConfig):
    """A model whose blocks attend to cached inputs, of the M positions before a segment, and may remember more."""

    way: ClassVar[Way] = "stream"
    left_open: ClassVar[tuple[str, ...]] = (*BackboneConfig.left_open, "mem_length")

    if TYPE_CHECKING:  # fields of each backbone, which says what they mean to it
        layers: int
        segment_length: int | None
        mem_length: int | None

    @abstractmethod
    def memory_spec(self, block: int, context: int) -> NamedTuple:
        """Shapes of what a block keeps besides cached inputs; blocks count from 1.

        Raises: UsageError if it cannot read such segments.
        """

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Inputs of each layer: M positions before a segment, and all but the last of its own; the place in it.

        Then the memory of each block, by the block's number.
        """
        assert self.mem_length is not None, "the stage fills it in"
        cached = StateArray((self.layers, 1, self.mem_length + context - 1, self.width))
        spec = {"cached": cached, "place": StateArray((1,), "int64")}
        for block in range(1, self.layers + 1):
            memory = present(self.memory_spec(block, context))
            spec |= {f"{in_block(block)}{name}": array for name, array in memory.items()}
        return spec

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError if the model has segments of another length, or layers that cannot read such ones."""
        require_segments(self.segment_length, segment_length)
        memory = segment_length if self.mem_length is None else self.mem_length
        lengths = {"segment_length": segment_length, "mem_length": memory}
        self.model_copy(update=lengths).state_spec(segment_length)
        return lengths

    def reading(self, windows: WindowSettings) -> Self:
        memory = self.mem_length if windows.mem_length is None else windows.mem_length
        lengths: dict[str, Any] = {"segment_length": windows.context, "mem_length": memory}
        if windows.long_length is not None:
            attention: Any = getattr(self, "attention", None)
            lengths["attention"] = attention.lengthened(windows.long_length)
        read = self.model_copy(update=lengths)
        read.state_spec(windows.context)
        return read


class DistancesConfig(SegmentedConfig):
    """One that knows positions by their distances."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.width % 2:
            raise ValueError(f"relative positions need an even width, not {self.width}")
        return self


def in_block(block: int) -> str:
    """Prefix of the names of a block's memory in the state of the whole network."""
    return f"block{block}."
