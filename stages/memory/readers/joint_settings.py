"""Settings of the reader `joint`."""

from typing import Annotated, ClassVar

from pydantic import Field

from stages.memory.hyperparameter import Choice, Hyperparameter
from stages.memory.readers.settings import ReaderSettings

GRID = (
    *(-20.0, -16.0, -13.0, -10.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0),
    *(-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0),
)
JOINT_TEMPERATURES = (0.7, 0.85, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 6, 10, 20, 50)
"""τ around the model's own, which the best lie near; models trained without memory are best, and flat, at the end."""


class JointSettings(ReaderSettings):
    """One softmax over the vocabulary's scores and the memory's."""

    means: ClassVar[str] = "one softmax over the scores of types and of entries"
    needs_scores: ClassVar[bool] = True
    temperatures: ClassVar[tuple[float, ...]] = JOINT_TEMPERATURES
    weight: Annotated[
        Choice[float], Hyperparameter("α", grid=GRID, means="added to the scores of entries", untuned=(0.0,))
    ] = Field((0.0,), alias="alpha")
    """α, in nats: added to the memory's scores, after temperature."""
