"""Settings of SRU++; free of torch."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from stages.config import Spelling
from stages.models.backbones.segmented_config import SegmentedConfig
from stages.models.config import Probability, Reads, Size, StateArray


class Cell(NamedTuple):
    """Memory of a layer: c after the latest position, [B, d]."""

    c: Any


class SRUPlusPlusConfig(SegmentedConfig):
    """Simple recurrent units whose inputs come out of attention; reads a stream, and needs no positions.

    Source: Lei 2021 (arXiv:2102.12459).
    """

    backbone: Literal["sru++"] = "sru++"
    layers: Size = 4
    projection: Size | None = None
    """Width p of attention, and of what a layer without attention projects to; None: a quarter of the width."""
    heads: Size = 1
    attention_every: Size = 1
    """Every how many layers have attention; larger than `layers`: none has."""
    attention_dropout: Probability = 0.0
    highway_bias: float = -2.0
    """Where the bias of the gate r begins, of h = r c + (1 - r) x: below 0 a layer begins by passing on its input."""
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """Positions before its segment that an input attends to, M; None: the segment length."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.projected < 1 or self.projected % self.heads:
            legal = [number for number in range(1, self.projected + 1) if self.projected % number == 0]
            raise ValueError(
                f"heads {self.heads} do not divide the width {self.projected} of attention (projection, or a quarter "
                f"of width): heads may be {', '.join(map(str, legal)) or 'none: choose a width of 4 or more'}"
            )
        return self

    @property
    def projected(self) -> int:
        """p."""
        return self.width // 4 if self.projection is None else self.projection

    def attends(self, block: int) -> bool:
        """Whether a layer has attention; layers count from 1."""
        return block % self.attention_every == 0

    @property
    def reads(self) -> Reads:
        return Reads()

    def memory_spec(self, block: int, context: int) -> Cell:
        return Cell(StateArray((1, self.width)))
