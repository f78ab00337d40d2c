"""Settings of the gate that lets tokens of neighbours into hidden states (SPALM). Free of torch."""

from typing import Literal, Self

from stages.config import Settings
from stages.errors import UsageError


class NeighborSettings(Settings):
    """A part of every model's settings: weights do not settle it, so a trained model may get a gate."""

    gate: Literal["vector", "scalar"] | None = None
    """Gate that adds neighbours' tokens to the hidden state: one value a dimension, or one a position; None: no
    gate."""
    gate_values: Literal["scaled", "raw"] | None = None
    """Representation of a neighbour's token: its embedding (`raw`), or sqrt(d) times that, as the first layer reads
    it (`scaled`). None: the method chooses."""

    @property
    def reads_neighbors(self) -> bool:
        """Whether tokens of neighbours enter its hidden states, whatever memory is read beside the model."""
        return self.gate is not None

    @property
    def asks_for_neighbors(self) -> bool:
        """Whether any of these settings is given."""
        return bool(self.gate or self.gate_values)

    def reading_neighbors(self, asked: "NeighborSettings", whose: str) -> Self:
        """The same model, trained, with a gate as asked for where it has none.

        Args:
            whose: the name of the model, for messages.
        Raises: UsageError if it has another gate.
        """
        own = {"gate": self.gate, "gate_values": self.gate_values or "raw"} if self.gate else {}
        chosen = {name: value for name in NEIGHBOR_SETTINGS if (value := getattr(asked, name))}
        for name, value in chosen.items():
            if own.get(name, value) != value:
                raise UsageError(f"{whose} has model.{name}={own[name]}: leave model.{name} out.")
        return self.model_copy(update=chosen | own)


NEIGHBOR_SETTINGS = tuple(NeighborSettings.model_fields)
"""Names of settings that make a model read neighbours."""
