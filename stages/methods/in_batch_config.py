"""Settings that methods which read the memory of their own batch share. Free of torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import Share, WithoutNeighbors
from stages.models.config import BackboneConfig


class InBatchConfig(WithoutNeighbors):
    """One softmax over the vocabulary and positions of the same batch.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674).
    """

    joint: ClassVar[bool] = True

    key: Literal["hidden", "ffn-input"] | None = None
    """Representation that memory is searched with; None: the backbone's first."""
    temperature: Annotated[float, Field(ge=1e-6)] = 1.0
    """τ: memory scores are divided by it, those of the vocabulary are not."""
    warmup: Share = 0.05
    """Share of the updates, the first ones, that minimize the plain loss."""
    backpropagate: bool = True
    """Whether gradients flow into the keys that are read, not only into those that read."""

    def with_key(self, model: BackboneConfig) -> Self:
        """The settings with the key named. Raises: UsageError if the model does not have it."""
        key = self.key or model.reads.keys[0]
        if key not in model.reads.keys:
            raise UsageError(
                f"memory.key: a model with backbone {model.backbone!r} has no key {key!r}; use {model.reads.keys[0]!r}."
            )
        return self.model_copy(update={"key": key})
