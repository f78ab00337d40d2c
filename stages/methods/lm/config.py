"""Settings of plain language modelling: none. Free of torch."""

from typing import Literal, Self

from stages.methods.config import MethodSettings
from stages.models.config import BackboneConfig


class LmConfig(MethodSettings):
    """Nothing to tell it."""

    method: Literal["lm"] = "lm"

    @property
    def neighbors_read(self) -> int:
        return 0

    @property
    def continues(self) -> None:
        return None

    def fitted(self, model: BackboneConfig) -> BackboneConfig:
        return model

    def sized(self, model: BackboneConfig, batch: int, processes: int) -> Self:
        return self
