"""Settings of the LSTM; free of torch."""

from typing import Any, ClassVar, Literal, Self

from stages.examples import Way
from stages.models.config import BackboneConfig, Reads, Size, StateArray
from stages.models.windows import WindowSettings


class LSTMConfig(BackboneConfig):
    """Long short-term memory: reads a stream token by token and carries its state from segment to segment."""

    way: ClassVar[Way] = "stream"

    backbone: Literal["lstm"] = "lstm"
    layers: Size = 1

    @property
    def reads(self) -> Reads:
        return Reads()

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """h and c of each layer."""
        return dict.fromkeys(("h", "c"), StateArray((self.layers, 1, self.width)))

    def sizes(self, segment_length: int) -> dict[str, Any]:
        return {}

    def reading(self, windows: WindowSettings) -> Self:
        return self
