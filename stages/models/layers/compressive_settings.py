"""Settings of compressive attention; free of torch."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from stages.errors import UsageError
from stages.models.config import Size, StateArray
from stages.models.layers.settings import AttentionConfig, StreamAttentionSettings


class Slots(NamedTuple):
    """Memory of compressive attention."""

    slots: Any
    """Compressed inputs, the oldest first, not normalized yet, [B, s, d]."""


class CompressiveSettings(StreamAttentionSettings):
    """Attention by distance whose cached inputs, when they are dropped, are first compressed, `rate` to one slot.

    Source: Rae et al. 2020 (Compressive Transformer, arXiv:1911.05507).
    """

    name: Literal["compressive"] = "compressive"
    long_length: Annotated[int, Field(ge=0, lt=2**31)] = 128
    """C, slots that are attended to before the cached positions; the oldest are dropped."""
    rate: Size = 4
    """c, positions that make a slot; segments and cached positions are multiples of it."""
    compression: Literal["conv", "mean", "max"] = "conv"
    """How a slot is made: a convolution trained to keep what attention reads, the mean, or the maximum."""

    def memory_spec(self, model: AttentionConfig, context: int) -> Slots:
        """C slots, as wide as the model.

        Raises: UsageError if lengths are not multiples of the rate.
        """
        self._require_multiple("--segment-length, or --context at test,", context, least=self.rate)
        self._require_multiple("--mem-length", model.lengths.mem_length or 0, least=0)
        return Slots(StateArray((1, self.long_length, model.width)))

    def _require_multiple(self, what: str, length: int, least: int) -> None:
        if length % self.rate:
            near = max(least, round(length / self.rate) * self.rate)
            raise UsageError(
                f"Attention 'compressive' makes one slot of {self.rate} positions, and {what} is {length}, "
                f"no multiple of {self.rate}: {near} is (or another model.attention.rate, in training)."
            )
