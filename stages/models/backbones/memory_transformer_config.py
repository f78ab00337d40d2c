"""Settings of the Transformer with memory tokens; free of torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.config import Spelling
from stages.errors import UsageError
from stages.models.backbones.segmented_config import DistancesConfig
from stages.models.config import Reads, Size
from stages.models.layers.settings import FEED_FORWARD_KEYS, BlockSizes, Nothing


class MemoryTransformerConfig(DistancesConfig, BlockSizes):
    """A Transformer-XL with memory tokens: learned rows that read the positions before a segment, and are read in it.

    Source: Burtsev et al. 2020 (arXiv:2006.11527), whose encoders these are decoders of.
    """

    backbone: Literal["memory-transformer"] = "memory-transformer"
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    mem_length: Annotated[Annotated[int, Field(ge=0)] | None, Spelling()] = None
    """Positions before its segment that memory tokens read, M; None: the segment length."""
    memory_tokens: Annotated[int, Field(ge=0, lt=2**31)] = 20
    """m; they begin anew with every segment."""
    memory_rows: Literal["shared", "controller", "bottleneck"] = "shared"
    """The weights that compute them: those of tokens (MemTransformer) or their own (MemCtrl, MemBottleneck).

    With `bottleneck` tokens see nothing before their segment but what these rows say of it.
    """
    shared_controller: bool = False
    """Whether the own weights are the same in all blocks."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.shared_controller and self.memory_rows == "shared":
            raise ValueError("shared_controller is of memory_rows controller and bottleneck: leave it out")
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
        """Raises: UsageError if there are memory tokens, and nothing for them to read."""
        if self.memory_tokens and not self.mem_length:
            raise UsageError(
                "Memory tokens read the positions before a segment: --mem-length must be 1 or more (or "
                "model.memory_tokens 0)."
            )
        return Nothing()
