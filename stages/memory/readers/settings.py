"""Settings of readers, which are the keys that each adds to a reading. Free of torch."""

from typing import Annotated, ClassVar

from pydantic import Field

from stages.memory.hyperparameter import Choice, Hyperparameter, PolicyName, ReadingOptions


class ReaderSettings(ReadingOptions):
    """The one key that a reader adds to a reading: the weight of the memory, under its name in
    papers.
    """

    means: ClassVar[str] = ""
    """How the two distributions are combined, in a few words."""
    needs_scores: ClassVar[bool] = False
    """Whether it needs the original scores of the vocabulary, which only the first reading has."""
    temperatures: ClassVar[tuple[float, ...]] = ()
    """Candidates of `tune` for τ, in units of the model's own τ, if scores are those of training;
    empty: they are measured in a sample."""
    weight: Choice[float] | PolicyName | None = None


Weight = Annotated[float, Field(ge=0, lt=1)]
GRID = (
    *(0.02, 0.05, 0.08, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.275, 0.3),
    *(0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.95),
)
LAMBDA = Hyperparameter(
    "λ", grid=GRID, off=0.0, example="0.25", means="weight of the memory", untuned=(0.25, 0.1)
)
"""The untuned values are near those tuned on WikiText-2."""


class InterpolateSettings(ReaderSettings):
    """A weighted mean of two distributions."""

    means: ClassVar[str] = "a weighted mean with what stands before it"
    weight: Annotated[Choice[Weight] | PolicyName | None, LAMBDA] = Field(None, alias="lambda")
    """λ: weight of the memory; `learned`, or another policy: one for each context."""


JOINT_GRID = (
    *(-20.0, -16.0, -13.0, -10.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0),
    *(-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0),
)
JOINT_TEMPERATURES = (0.7, 0.85, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 6, 10, 20, 50)
"""τ near the model's own, where the best values are; models trained without memory are best, and
flat, at the end.
"""


class JointSettings(ReaderSettings):
    """One softmax over the vocabulary's scores and the memory's."""

    means: ClassVar[str] = "one softmax over the scores of types and of entries"
    needs_scores: ClassVar[bool] = True
    temperatures: ClassVar[tuple[float, ...]] = JOINT_TEMPERATURES
    weight: Annotated[
        Choice[float],
        Hyperparameter(
            "α", grid=JOINT_GRID, means="added to the scores of entries", untuned=(0.0,)
        ),
    ] = Field((0.0,), alias="alpha")
    """α, in nats: added to the memory's scores, after temperature."""
