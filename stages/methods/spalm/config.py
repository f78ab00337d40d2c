"""Settings of SPALM. Free of torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.methods.config import Batches, MethodSettings
from stages.models.config import BackboneConfig

USUAL_DROPOUT = 0.5


class SpalmConfig(MethodSettings):
    """Tokens of precomputed neighbours enter the hidden state through a gate.

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557).
    """

    takes: ClassVar[tuple[str, ...]] = ("neighbors",)
    usual_backbone: ClassVar[str | None] = "transformer-xl"

    method: Literal["spalm"] = "spalm"
    k: Annotated[int, Field(gt=0)] = 4
    """Neighbours that a position reads, the best of those stored."""
    neighbor_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Probability that a position goes without its neighbours in training; None: `USUAL_DROPOUT`, of the gate alone 0.
    Not of the paper."""
    only_gate: bool = False
    """Whether all but the gate stays as the model that training begins from."""

    @property
    def neighbors_read(self) -> int:
        return self.k

    @property
    def continues(self) -> str | None:
        return "memory.only_gate trains the gate of a trained model alone" if self.only_gate else None

    def fitted(self, model: BackboneConfig) -> BackboneConfig:
        return model.model_copy(update={"gate": model.gate or "vector", "gate_values": model.gate_values or "scaled"})

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        if self.neighbor_dropout is not None:
            return self
        return self.model_copy(update={"neighbor_dropout": 0.0 if self.only_gate else USUAL_DROPOUT})
