"""Settings of the classifier. Free of torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.config import Settings

Pool = Literal["mean", "last", "first"]
"""How the hidden states of an example become one vector: their mean, the last, or the first."""


class ClassifierSettings(Settings):
    """A softmax over labels that are all known in advance."""

    reads_frozen: ClassVar[bool] = False
    """Whether the model has a copy of itself that learns nothing, for the head to read."""

    name: Literal["classifier"] = "classifier"
    labels: Annotated[int, Field(gt=0, lt=2**31)]
    """Labels of all tasks, |Y|."""
    pool: Pool = "mean"
