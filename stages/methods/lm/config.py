"""Settings of plain language modelling: none. Free of torch."""

from typing import ClassVar, Literal, Self

from stages.methods.config import Batches, WithoutNeighbors
from stages.models.config import BackboneConfig


class LmConfig(WithoutNeighbors):
    """Nothing to tell it."""

    padded: ClassVar[bool] = True

    method: Literal["lm"] = "lm"

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        return self
