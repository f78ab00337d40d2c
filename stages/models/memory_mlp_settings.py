"""Settings of an MLP memory, which are part of a model's settings. Free of torch."""

from typing import Annotated, Literal

from pydantic import Field

from stages.config import Settings


class MemoryMlpSettings(Settings):
    """Blocks on a trained model's own representation, with a distribution of their own."""

    layers: Annotated[int, Field(gt=0, lt=2**31)] = 4
    """Blocks."""
    ffn_width: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    """Inner width of a block; None: four times the model's width."""
    key: Literal["hidden", "ffn-input"] = "hidden"
    """Representation of the model that the first block reads."""
