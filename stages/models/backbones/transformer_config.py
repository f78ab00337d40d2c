"""Settings of the Transformer; free of torch."""

from typing import Annotated, Any, Literal, Self

from pydantic import model_validator

from stages.config import OneOf
from stages.errors import UsageError
from stages.models.config import Reads, Size, Stateless
from stages.models.layers import WINDOW_ATTENTION
from stages.models.layers.settings import FEED_FORWARD_KEYS, AttentionConfig, SoftmaxSettings, SublayerSettings


class TransformerConfig(Stateless, AttentionConfig):
    """A pre-norm decoder Transformer."""

    backbone: Literal["transformer"] = "transformer"
    positions: Literal["learned", "sinusoidal"] = "learned"
    max_positions: Size | None = None
    """Longest window that learned positions can read; None: the segment length of training."""
    attention: Annotated[SublayerSettings, OneOf(WINDOW_ATTENTION, by="name")] = SoftmaxSettings()
    """The attention layer of the blocks."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        return self

    @property
    def reads(self) -> Reads:
        longest = self.max_positions if self.positions == "learned" else None
        return Reads(FEED_FORWARD_KEYS, longest, self.lookup.reads_documents)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError if segments are longer than the learned positions."""
        if self.positions == "sinusoidal":
            return {}
        longest = self.max_positions or segment_length
        if longest < segment_length:
            raise UsageError(f"model.max_positions is {longest}, less than a segment of {segment_length} tokens.")
        return {"max_positions": longest}
