"""Settings of the methods that learn tasks. Free of torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.methods.config import Batches, Share, WithoutNeighbors
from stages.models.config import BackboneConfig
from stages.models.heads.classifier_settings import ClassifierSettings, Pool

Positive = Annotated[int, Field(gt=0)]


class TaskSettings(WithoutNeighbors):
    """A classifier over the labels of all tasks, known in advance, on the pooled hidden states of a document."""

    padded: ClassVar[bool] = True
    learns: ClassVar[Literal["text", "tasks", "joint tasks"]] = "tasks"

    pool: Pool = "mean"
    """How the hidden states of a document become one vector."""

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        return self

    def head(self, labels: int) -> ClassifierSettings:
        """The head of its models."""
        return ClassifierSettings(labels=labels, pool=self.pool)


class SequentialConfig(TaskSettings):
    """Each task after the other, and nothing else: the lower bound."""

    method: Literal["seq"] = "seq"


class MultitaskConfig(TaskSettings):
    """All tasks shuffled together: the upper bound."""

    learns: ClassVar[Literal["text", "tasks", "joint tasks"]] = "joint tasks"

    method: Literal["multitask"] = "multitask"


class ReplaySettings(TaskSettings):
    """A memory of examples, of which some are drawn at intervals.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), section 3.2.
    """

    every: Positive = 400
    """Examples of the stream between two draws, R_I (in the paper 10,000)."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.08
    """Examples of a draw, as a share of `every`: r (in the paper 0.01)."""
    write: Share = 1.0
    """Probability that an example is written."""


class ReplayConfig(ReplaySettings):
    """The examples that are drawn are learnt once more."""

    method: Literal["replay"] = "replay"
