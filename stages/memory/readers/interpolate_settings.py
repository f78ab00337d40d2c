"""Settings of the reader `interpolate`."""

from typing import Annotated, ClassVar

from pydantic import Field

from stages.memory.hyperparameter import Choice, Hyperparameter, PolicyName
from stages.memory.readers.settings import ReaderSettings

Weight = Annotated[float, Field(ge=0, lt=1)]
GRID = (
    *(0.02, 0.05, 0.08, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.275, 0.3),
    *(0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.95),
)
LAMBDA = Hyperparameter("λ", grid=GRID, off=0.0, example="0.25", means="weight of the memory", untuned=(0.25, 0.1))
"""Untuned it is near what WikiText-2 is tuned to."""


class InterpolateSettings(ReaderSettings):
    """A weighted mean of two distributions."""

    means: ClassVar[str] = "a weighted mean with what stands before it"
    weight: Annotated[Choice[Weight] | PolicyName | None, LAMBDA] = Field(None, alias="lambda")
    """λ: weight of the memory; `learned`, or another policy: one for each context."""
