"""Settings of the methods that learn tasks. Free of torch."""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import METHODS, TRAIN, MethodSettings, Share
from stages.methods.stream.word_answers import spelled_labels, writing_model
from stages.models.config import BackboneConfig
from stages.models.head_settings import (
    ClassifierSettings,
    MatcherSettings,
    ModulatedSettings,
    Pool,
    SpanSettings,
)
from stages.text.config import Records

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

Positive = Annotated[int, Field(gt=0)]
OptimizerState = Literal["kept", "new"]
MOST_STEPS = 10**6
"""Maximum number of updates at the start of a task: with more it would hardly end."""
MOST_ATTEMPTS = 1000
"""Maximum number of attempts at a sample: a model that never succeeds must stop."""


class TaskSettings(MethodSettings):
    """A classifier over the labels of all tasks, known in advance, on the pooled hidden states of a
    document.
    """

    padded: ClassVar[bool] = True
    learns: ClassVar[Literal["text", "tasks", "joint tasks"]] = "tasks"
    scores_tokens: ClassVar[bool] = False

    learns_from: ClassVar[frozenset[Records]] = frozenset({"labels", "spans"})
    """Kinds of records of tasks that the method learns from."""

    pool: Pool = "mean"
    """How the hidden states of a document become one vector."""

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        """The model with the head that the method gives it. Raises: UsageError if that does not
        fit.
        """
        if self.require_records(tokens) == "spans":
            return model.model_copy(update={"head": SpanSettings()})
        head = self.head(len(tokens.metrics["labels"]))
        return model.model_copy(update={"head": head})

    def require_records(self, tokens: "Artifact") -> Records:
        """The kind of the tasks' records: with labels, spans or answers.

        Raises: UsageError, naming other methods, if the method cannot learn from that kind.
        """
        records: Records = tokens.metrics.get("records", "labels")
        if records in self.learns_from:
            return records

        methods = [
            name
            for name in METHODS.names()
            if records in getattr(METHODS.settings(name), "learns_from", ())
        ]
        # The field `method`, its literal name, is declared in each subclass.
        settings: Any = self
        raise UsageError(
            f"--method {settings.method}: it learns no records with {records} alone, which {tokens.reference} has; "
            f"there {'are' if len(methods) > 1 else 'is'} {', '.join(methods)}."
        )

    def head(self, labels: int) -> ClassifierSettings:
        """The head of its models."""
        return ClassifierSettings(labels=labels, pool=self.pool)


class PlainSettings(TaskSettings):
    """The plain loss; answers in words are learnt by the vocabulary's own softmax."""

    learns_from: ClassVar[frozenset[Records]] = frozenset({"labels", "spans", "answers"})

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        if self.require_records(tokens) == "answers":
            return writing_model(model, tokens, asks=True)
        return super().extend_model(model, tokens)


class SequentialConfig(PlainSettings):
    """Each task after the other, and nothing else: the lower bound."""

    method: Literal["seq"] = "seq"


class MultitaskConfig(PlainSettings):
    """All tasks shuffled together: the upper bound."""

    learns: ClassVar[Literal["text", "tasks", "joint tasks"]] = "joint tasks"

    method: Literal["multitask"] = "multitask"


class BoundedSettings(TaskSettings):
    """A memory with a maximum number of documents of each task."""

    size: Positive | None = None
    """Documents of a task that are kept, the first that are written; None: all."""

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        """Check the size before the model is extended.

        Raises: UsageError also for a size that no task has.
        """
        max_documents = max(tokens.metrics["splits"][TRAIN]["task_documents"])
        usual = type(self).model_fields["size"].default
        # A default size may be more than a task has.
        is_usual = self.size == usual
        if self.size is not None and not is_usual and self.size > max_documents:
            raise UsageError(
                f"memory.size is {self.size:,}, but no task of {tokens.reference} has more than {max_documents:,} documents."
            )
        return super().extend_model(model, tokens)


class ReplaySettings(BoundedSettings):
    """A memory of examples, of which some are drawn at intervals.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), section 3.2.
    """

    every: Positive = 64
    """Examples of the stream between two draws, R_I (in the paper 10,000)."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Examples of a draw, as a share of `every`: r (in the paper 0.01)."""
    draw: Positive | None = None
    """Examples of a draw, whatever `every` is; None: `rate` · `every`, but at least one."""
    write: Share = 1.0
    """Probability that an example is written."""

    @property
    def draw_size(self) -> int:
        """Examples of a draw from a memory that has as many."""
        return self.draw or max(1, int(self.rate * self.every))

    def draws(self, updates: int, size: int) -> int:
        return updates * size // self.every

    def cautions(self, batch: int, accumulate: int) -> list[str]:
        """A warning if the share of a draw is less than one example, so that each draw has one."""
        if self.draw is not None or self.rate * self.every >= 1:
            return []
        return [
            f"memory.rate {self.rate:g} of memory.every {self.every} is less than one document, so a draw has one. "
            f"Set how many it has: memory.draw={batch} is a batch"
        ]


class ReplayConfig(ReplaySettings):
    """The examples that are drawn are learnt once more."""

    method: Literal["replay"] = "replay"


class AGemConfig(ReplaySettings):
    """Gradients that would raise the loss on a draw are projected.

    Source: Chaudhry et al. 2019 (arXiv:1812.00420).
    """

    method: Literal["a-gem"] = "a-gem"
    reference: Literal["projected", "added"] = "projected"
    """Use of the gradient of a draw: the update's own loses its part against it, or, as a control,
    both are added."""

    def draws(self, updates: int, size: int) -> int:
        # An update has one gradient, so that it draws once at most.
        return min(updates, super().draws(updates, size))


class GemConfig(TaskSettings):
    """No gradient points against that of an earlier task.

    Source: Lopez-Paz and Ranzato 2017 (arXiv:1706.08840).
    """

    method: Literal["gem"] = "gem"
    share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Documents of a task that are kept, as a share; each step reads all of them."""
    margin: Annotated[float, Field(ge=0)] = 0.5
    """Least weight of the gradient of each task before, where one must be added."""


class AnchorSettings(TaskSettings):
    """A quadratic penalty holds weights at what they were after the task before, by their
    importance.
    """

    copies: ClassVar[int] = 2

    penalty: Annotated[float, Field(ge=0)] = 1000.0
    """λ; it depends on model and tasks, so try powers of ten."""
    decay: Share = 1.0
    """ρ: share of the earlier importance that is kept when a task ends."""
    examples: Positive = 512
    """Examples of a task, at most, that importance is a mean over."""


class EwcConfig(AnchorSettings):
    """Importance is Fisher information (online EWC).

    Source: Schwarz et al. 2018 (arXiv:1805.06370), section 3.
    """

    method: Literal["ewc"] = "ewc"


class MasConfig(AnchorSettings):
    """Importance is the change of the scores of labels.

    Source: Aljundi et al. 2018 (arXiv:1711.09601).
    """

    method: Literal["mas"] = "mas"
    penalty: Annotated[float, Field(ge=0)] = 1.0
    """λ; it depends on model and tasks, so try powers of ten."""


class EpisodeSettings(ReplaySettings):
    """Episodes: fast weights learn a support by themselves, the others learn to make that useful.

    Source: Holla et al. 2020 (arXiv:2009.04891), section 4.
    """

    every: Positive = 176
    """Examples of the stream between two draws, R_I (in the paper 9,600); every second query is a
    draw where a batch has 16 examples."""
    support: Positive = 5
    """Batches of the stream that the fast weights learn before the batch of a query, m."""
    inner_lr: Annotated[float, Field(gt=0)] = 1e-2
    """α, learning rate of the fast weights (in the paper 0.001)."""

    def interval(self, size: int) -> int:
        """Number of episodes between two queries from memory, with batches of `size` examples:
        R_F = ⌈(R_I / b + 1) / (m + 1)⌉.

        >>> EpisodeSettings(method="", every=9600).interval(16)
        101
        >>> EpisodeSettings(method="", every=1600).interval(4)
        67
        """
        return ceil((self.every / size + 1) / (self.support + 1))

    def draws(self, updates: int, size: int) -> int:
        interval = self.interval(size)
        # An episode whose query is a draw reads one batch of the stream less than the others.
        cycle = interval * (self.support + 1) - 1
        return updates // cycle

    def cautions(self, batch: int, accumulate: int) -> list[str]:
        """A warning, too, if every query is a draw from memory, so that the stream is never one."""
        cautions = super().cautions(batch, accumulate)
        size = batch * accumulate
        if self.interval(size) > 1:
            return cautions
        alone = (
            f"every query of {self.method!r} is a draw from memory, and the stream is never one, since R_F = "
            f"⌈({self.every} / {size} + 1) / ({self.support} + 1)⌉ = 1 (in the paper 101). Set memory.every to more "
            f"than {self.support * size}"
        )
        return [alone, *cautions]


class OmlErConfig(EpisodeSettings):
    """The fast weights are the head."""

    method: Literal["oml-er"] = "oml-er"


class AnmlErConfig(EpisodeSettings):
    """The fast weights are encoder and head; the others gate their features."""

    copies: ClassVar[int] = 1
    learns_from: ClassVar[frozenset[Records]] = frozenset({"labels"})

    method: Literal["anml-er"] = "anml-er"

    def head(self, labels: int) -> ModulatedSettings:
        return ModulatedSettings(labels=labels, pool=self.pool)


class MetaMbpaConfig(ReplaySettings):
    """Each batch is learnt at weights that a step on its neighbours in memory has changed.

    Source: Wang et al. 2020 (arXiv:2010.02500), section 3.
    """

    takes: ClassVar[tuple[str, ...]] = ("episodes",)

    method: Literal["meta-mbpa"] = "meta-mbpa"
    write: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of each block that is written (in the paper 0.01, of a far longer stream)."""
    block: Positive = 1000
    """Examples of a block, from which those that are written are chosen."""
    beta: Annotated[float, Field(gt=0)] | None = None
    """β: an example at squared distance d² from memory is chosen with weight 1 - exp(-d² / β) (in
    the paper 10); None:
    the median of d² in the first block that finds memory."""
    k: Positive = 8
    """Neighbours of each example, K (in the paper 32)."""
    inner_lr: Annotated[float, Field(gt=0)] | None = None
    """α, learning rate of the step on neighbours; None: the current one of training, as in the
    paper.
    """
    own_neighbor: bool = True
    """Whether a document that is drawn from memory may be its own neighbour."""
    adapt: Literal["batch", "example"] = "batch"
    """Neighbours that make a step: those of a whole batch, or, as in the paper, of each example by
    itself.
    """
    second_order: bool = False
    """Whether gradients reach through the step on neighbours, as in the paper."""

    @property
    def written(self) -> int:
        """Examples of a whole block that are written."""
        return max(1, round(self.write * self.block))

    def require_documents(self, of_tasks: Sequence[int], read: int) -> None:
        """Check that memory will have `k` documents at the last update.

        Args:
            of_tasks: number of documents of each task.
            read: number of documents that are read before the last update.
        Raises: UsageError if it would never adapt because memory never has `k` documents.
        """
        room = 0
        for count in of_tasks:
            room += count if self.size is None else min(count, self.size)
        num_written = read // self.block * self.written
        rows = min(num_written, room)
        if rows < self.k:
            raise UsageError(
                f"Method meta-mbpa adapts to memory.k {self.k:,} documents, but memory has {rows:,} before the last "
                f"update: of each {self.block:,} that are read {self.written:,} are written. Choose a smaller "
                "memory.k or memory.block, a larger memory.write or memory.size, or more --epochs."
            )


class EmarConfig(BoundedSettings):
    """Memory is activated and reconsolidated: `--epochs 3` has the paper's two rounds.

    Source: Han et al. 2020 (ACL 2020, aclanthology.org/2020.acl-main.573).
    """

    learns_from: ClassVar[frozenset[Records]] = frozenset({"labels"})

    method: Literal["emar"] = "emar"
    size: Positive = 50
    """Documents of a task that are kept, B."""
    consolidation_batch: Positive = 5
    """Documents of memory that a step of reconsolidation reads."""
    optimizer: OptimizerState = "kept"
    """The optimizer's state at the beginning of a task: that of the task before, or, as in the
    paper, new.
    """
    names: bool = False
    """Whether the weight of a label begins at its encoded name, instead of at random (in the paper
    it is that name).
    """

    @property
    def renews_optimizer(self) -> bool:
        return self.optimizer == "new"

    def head(self, labels: int) -> MatcherSettings:
        return MatcherSettings(labels=labels, pool=self.pool)

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        model = super().extend_model(model, tokens)
        if not self.names:
            return model
        head = self.head(len(tokens.metrics["labels"]))
        return model.model_copy(
            update={"head": head.model_copy(update={"names": spelled_labels(tokens)})}
        )
