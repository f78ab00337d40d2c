"""Settings of the training methods, default memories of their models, and files that methods leave.
Free of torch.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from stages.config import OneOf, Settings
from stages.methods import METHODS
from stages.models.config import BackboneConfig

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.artifacts.stage import Inputs

TRAIN = "train"
VALID = "valid"
"""The splits that training reads."""
Share = Annotated[float, Field(ge=0, le=1)]


ENOUGH_DOCUMENTS = 8
"""Minimum number of documents in an update: with fewer, its gradient is much noisier than its
tokens suggest.

Measured: docs/results/trime.md, "Batches of few documents".
"""


class Batches(NamedTuple):
    """Batches of a training run, as far as they are known before it starts."""

    segments: int
    """Segments of a forward batch, over all processes."""
    processes: int = 1
    """Processes that train together."""
    accumulate: int = 1
    """Forward batches of an update."""
    borders: float = 0.0
    """Borders of documents that fall into a segment, on average."""
    same_document: float | None = None
    """Share of packed segments that follow a segment of the same document; None: nothing is packed.
    """

    def documents(self, groups: int, same: float) -> float:
        """Estimate the number of documents in an update. In a text of one document, distant places
        count as documents.

        Args:
            groups: equal groups of a forward batch, each begun anywhere in the text.
            same: share of the other segments of a group that belong to the document of the segment
            before.
        """
        others = self.segments / groups - 1
        return self.accumulate * (groups * (1 + others * (1 - same)) + self.segments * self.borders)

    def enough(self, groups: Iterable[int], same: float) -> int:
        """The smallest number among `groups` that gives an update enough documents; if none does,
        the largest.
        """
        documents = {number: round(self.documents(number, same)) for number in sorted(groups)}
        enough = min(ENOUGH_DOCUMENTS, max(documents.values()))
        return next(number for number, count in documents.items() if count >= enough)


class EvaluationDefaults(NamedTuple):
    """Memory that models of a training method are read with; texts as after `--memory`."""

    alone: tuple[str, ...] = ()
    """Readings without a datastore; with one, kNN-LM is read on top of them."""
    own_datastore: tuple[str, ...] | None = None
    """Readings with a datastore of the model's own keys, if it learned to read one."""
    trained_with_memory: bool = False
    """Whether training read memory, by the scaled product of keys."""


class MethodSettings(Settings):
    """Settings of a method (`memory` of a training run), and its requirements on the rest of the
    run.

    A run of a method without settings has `memory` None.
    """

    takes: ClassVar[tuple[str, ...]] = ("tokens",)
    """Kinds of artifacts that it learns from: tokens, and names in `stages.training.INPUTS`."""
    padded: ClassVar[bool] = False
    """Whether its loss leaves out padding (`Batch.mask`), so that it can learn from examples of
    unequal length.
    """
    smoothable: ClassVar[bool] = True
    """Whether labels can be smoothed: not in one softmax with a memory, nor if they are soft."""
    learns: ClassVar[Literal["text", "tasks", "joint tasks"]] = "text"
    """Objective: text, or the labels of tasks, one task after the other or all at once."""
    scores_tokens: ClassVar[bool] = True
    """Whether its models score tokens; models of an encoder do not."""
    grows: ClassVar[bool] = False
    """Whether it replaces the network during training; compiled passes would still run the old one.
    """
    copies: ClassVar[int] = 0
    """Additional numbers for each trained weight, in memory and in every checkpoint."""
    indirect_inputs: ClassVar[tuple[str, ...]] = ()
    """Inputs that are found through another artifact, such as the text of the initial model: names
    in `stages.training.INPUTS`.
    """
    neighbor_splits: ClassVar[tuple[str, ...]] = (TRAIN, VALID)
    """Splits whose neighbours it needs, if it takes neighbours."""
    usual_backbone: ClassVar[str | None] = None
    """Backbone if the user names none; None: the default of all methods."""
    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults()
    """Memory of its models in evaluation if the user names none."""

    method: str

    @property
    def neighbors_read(self) -> int:
        """Neighbours of each token that the model reads. By default it reads none."""
        return 0

    @property
    def renews_optimizer(self) -> bool:
        """Whether the optimizer's state is new at the beginning of each task. By default it is, if
        the weights are others.
        """
        return self.grows

    @property
    def continues(self) -> str | None:
        """Reason, as part of a message, why training must begin from a trained model; None: it need
        not.
        """
        return None

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        """The model with what this method adds to it for these tokens; by default nothing.

        Raises: UsageError if the method has no use for the model or for the tokens.
        """
        return model

    def task_model(self, model: BackboneConfig, place: int) -> BackboneConfig:
        """The model at its size in the task at a place in the stream, from 0.

        `model`: the model at its size in the last task. By default it keeps its size.
        """
        return model

    def require_documents(self, of_tasks: Sequence[int], read: int) -> None:
        """Check that a run over a stream is long enough.

        Args:
            of_tasks: number of documents of each task.
            read: documents that are read before the last update.
        Raises: UsageError if the method would do nothing of its own.
        """

    @property
    def draw_size(self) -> int:
        """Most documents of a draw from memory; 0: it draws none."""
        return 0

    def draws(self, updates: int, size: int) -> int:
        """Number of draws from memory in some updates of `size` examples of the stream."""
        return 0

    def cautions(self, batch: int, accumulate: int) -> list[str]:
        """Warnings about settings that are legal, but seldom meant; by default none.

        Args:
            batch: examples of a forward batch.
            accumulate: forward batches of an update.
        """
        return []

    def fitted(self, inputs: "Inputs") -> Self:
        """The settings with what follows from the artifacts filled in; by default nothing does."""
        return self

    def complete(self, model: BackboneConfig, batches: Batches) -> Self:
        """The settings with what follows from the model and the batches filled in; by default
        nothing does.

        Raises: UsageError if these do not go together.
        """
        return self

    @classmethod
    def has_settings(cls) -> bool:
        """Whether the method has settings of its own."""
        return set(cls.model_fields) != {"method"}


MemoryConfig = Annotated[MethodSettings, OneOf(METHODS, by="method")]
"""The settings of any method that has some; the field `method` says which."""


def methods_for(kind: str) -> str:
    """The methods that learn from artifacts of a kind in addition to tokens, as a message names
    them.
    """
    return ", ".join(name for name in METHODS.names() if kind in METHODS.settings(name).takes)


def with_method(memory: Any, method: str) -> Any:
    """The settings of `memory` marked as those of `method`; None where it has none.

    Raises: UsageError for an unknown method, ValueError for settings of a method that has none, or
    another's.
    """
    settings = METHODS.settings(method)
    if not settings.has_settings():
        if memory is not None:
            others = (name for name in METHODS.names() if METHODS.settings(name).has_settings())
            raise ValueError(
                f"memory: method {method!r} trains without memory; leave it out, "
                f"or train with one of {', '.join(others)}"
            )
        return None
    if memory is None:
        return settings()
    if not isinstance(memory, dict):
        return memory
    if memory.get("method", method) != method:
        raise ValueError(
            f"memory.method is {memory['method']!r}, but the method is {method!r}; leave it out"
        )
    return memory | {"method": method}


AFTER = "after"
"""Weights after each task."""
MEMORY_FILE = "memory.safetensors"
"""Documents that a method keeps of the training split: `rows` int64 [M], in the order of writing,
and `tasks`.
"""


def after_file(place: int) -> str:
    """Name of the file with the weights after the task at a place in the stream, counted from 1; 0:
    before the first.

    >>> after_file(1)
    'after/01.safetensors'
    """
    return f"{AFTER}/{place:02d}.safetensors"


def samples_file(place: int) -> str:
    """Name of the file with the samples for the task at a place in the stream, counted from 1.

    >>> samples_file(2)
    'samples/02.json'
    """
    return f"samples/{place:02d}.json"
