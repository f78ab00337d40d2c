"""Settings of Memformer; free of torch."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from stages.errors import UsageError
from stages.examples import Way
from stages.models.config import Reads, Size, StateArray, require_segments
from stages.models.layers.settings import FEED_FORWARD_KEYS, BlockSizes
from stages.models.windows import WindowSettings


class MemformerConfig(BlockSizes):
    """An encoder reads the segment before and a memory of slots, and writes that; a decoder predicts the segment.

    `layers` are the decoder's. Source: Wu et al. 2022 (arXiv:2010.06891).
    """

    way: ClassVar[Way] = "stream"

    backbone: Literal["memformer"] = "memformer"
    encoder_layers: Size = 2
    slots: Annotated[int, Field(ge=0, lt=2**31)] = 32
    """k, vectors of memory; 0: the decoder knows the segment before, and nothing else."""
    summary_tokens: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Learned rows that the encoder reads behind a segment, to sum it up (the paper's classification tokens)."""
    temperature: Annotated[float, Field(gt=0)] = 0.25
    """Divisor of the scores of slots: the smaller, the fewer rows a slot takes from."""
    forgetting: Annotated[float, Field(gt=0)] = 0.1
    """Norm that the biases of slots begin with: the larger, the sooner a slot forgets what it is not given again."""
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS)

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Slots; what the encoder reads or has made of the segment before; what was read of the segment under way."""
        before = context + self.summary_tokens if context > 1 else 1
        past = StateArray((1, self.heads, context - 1, self.width // self.heads))
        spec = {
            "memory": StateArray((1, self.slots, self.width)),
            "before": StateArray((1, before, self.width)),
            "segment": StateArray((1, context - 1, self.width)),
        }
        return spec | {f"block{n}.past.{part}": past for n in range(1, self.layers + 1) for part in ("keys", "values")}

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError if the model has segments of another length."""
        require_segments(self.segment_length, segment_length)
        return {"segment_length": segment_length}

    def reading(self, windows: WindowSettings) -> Self:
        """Raises: UsageError for segments of another length: a memformer learns one for each place, and its slots."""
        if windows.context != self.segment_length:
            raise UsageError(
                f"A memformer reads segments of the length that it was trained with: --context {self.segment_length}, "
                f"not {windows.context}."
            )
        return self
