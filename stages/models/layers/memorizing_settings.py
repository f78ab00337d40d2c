"""Settings of memorizing attention; free of torch."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from stages.models.config import Size, StateArray
from stages.models.layers.settings import AttentionConfig, StreamAttentionSettings


class KeysAndValues(NamedTuple):
    """Memory of memorizing attention: the latest N entries, the oldest first, [B, heads, N, d_head] each."""

    keys: Any
    values: Any


class MemorizingSettings(StreamAttentionSettings):
    """Attention that also looks up keys and values of the latest positions, as they were made when these were read.

    Source: Wu et al. 2022 (Memorizing Transformers, arXiv:2203.08913).
    """

    name: Literal["memorizing"] = "memorizing"
    long_length: Annotated[int, Field(ge=0, lt=2**31)] = 2048
    """N, positions before the segment whose keys and values are kept; 0: none, attention is local."""
    neighbors: Size = 32
    """k, entries of them that a head reads: those with the largest scores."""
    scope: Literal["document", "stream"] = "document"
    """Whether a position finds entries of its own document alone, or all."""
    gate_bias: float = 0.0
    """Where the gate of each head begins, before the sigmoid: 0 weighs memory and local attention alike."""
    gate_lr: Annotated[float, Field(gt=0)] | None = None
    """Learning rate of the gates, the same at every step; None: they learn as all weights do."""
    buckets: Annotated[int, Field(ge=4, lt=2**31)] = 32
    """Number of distance buckets, each with a learned bias of local attention: half of them hold one distance, the
    others grow."""
    longest_distance: Size = 128
    """From here on all distances are alike; at least half of the number of buckets."""

    @model_validator(mode="after")
    def _buckets_fit(self) -> Self:
        single = self.buckets // 2
        if self.longest_distance < single:
            raise ValueError(
                f"longest_distance {self.longest_distance} is less than half of the {self.buckets} buckets, which "
                f"hold one distance each: {single} is the least"
            )
        return self

    def usual_blocks(self, blocks: int) -> tuple[int, ...]:
        """One block, three quarters of the way up: layer 9 of 12 in the paper (section 4.1).

        Its local attention has no recurrence beyond cached inputs, so memory in all blocks costs more than it gains.
        """
        return (-(-3 * blocks // 4),)

    def memory_spec(self, model: AttentionConfig, context: int) -> KeysAndValues:
        """Keys and values by head."""
        array = StateArray((1, model.heads, self.long_length, model.width // model.heads))
        return KeysAndValues(array, array)

    def taken_numbers(self, model: AttentionConfig) -> int:
        """Keys and values of the k best entries of each head."""
        return 2 * min(self.neighbors, self.long_length) * model.width
