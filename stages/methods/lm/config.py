"""Settings of plain language modelling: none. Free of torch."""

from typing import Literal, Self

from stages.methods.config import Batches, WithoutNeighbors
from stages.models.config import BackboneConfig


class LmConfig(WithoutNeighbors):
    """Nothing to tell it."""

    method: Literal["lm"] = "lm"

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        return self
