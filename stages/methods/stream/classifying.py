"""Learning the labels of documents: the base of all methods for streams of tasks, and plain steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.examples.documents import LabelledBatch, documents_of, labelled
from stages.examples.examples import Batch, Examples, Task
from stages.methods.method import (
    BatchIndex,
    BatchLayout,
    Carried,
    Loss,
    Method,
    ParameterGroup,
    Update,
)
from stages.methods.stream.config import PlainSettings, TaskSettings
from stages.methods.stream.spelled import SpelledBatch, Spelling, answer_loss
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

T = TypeVar("T", bound=TaskSettings)


class Classifying(Method[T]):
    """Mean of -log p(y | x) over the documents of a batch; no action between tasks."""

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        first = documents_of(tasks[0].examples)
        self._tasks = tasks
        self._split = first.of(np.arange(len(first.labels)))
        self._model = model
        self._device = next(model.parameters()).device
        self._seed = seed

    def place(self, task: Task) -> int:
        """Place of a task in the stream, from 0."""
        return [known_task.name for known_task in self._tasks].index(task.name)

    def random(self, *purpose: int) -> np.random.Generator:
        """A generator seeded with the seed and `purpose`: equal arguments give equal numbers."""
        return np.random.default_rng([self._seed, *purpose])

    def batches(self, rows: np.ndarray, size: int) -> Iterator[LabelledBatch]:
        """Documents [n] of the split, in batches."""
        for start in range(0, len(rows), size):
            yield self._split.batch(rows[start : start + size]).to(self._device)

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup([weight for weight in model.parameters() if weight.requires_grad])]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def loss(self, model: LanguageModel, batch: Any, carried: Carried) -> Loss:
        """Compute the loss; the batch is a `LabelledBatch`, unless a method makes another kind."""
        encoding = model.read(batch)
        scores = model.label_scores(batch, encoding)
        return Loss.of(F.cross_entropy(scores, batch.labels), encoding)


def document_losses(model: LanguageModel, batch: LabelledBatch) -> Tensor:
    """-log p(y | x) of each document of a batch, float [B], in nats; for a span the mean over its
    two ends.

    Their mean is the loss of `Classifying`. A method that weighs documents overrides `loss` with a
    mean of its own.
    """
    return losses_of_scores(model.label_scores(batch), batch.labels)


def losses_of_scores(scores: Tensor, labels: Tensor) -> Tensor:
    """-log p(y | x) of each document, float [B], in nats, from the scores of its labels."""
    losses = F.cross_entropy(scores, labels, reduction="none")
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


def add_gradients(
    update: Update, loss_of: Callable[[LabelledBatch], Tensor] | None = None
) -> tuple[Tensor, list[LabelledBatch]]:
    """Add the gradients of an update's batches; returns their mean loss, a scalar, and the batches.

    `loss_of`: the loss of a batch, if it is not that of the update.
    """
    loss_of_batch = loss_of or update.loss_of
    losses: list[Tensor] = []
    batches: list[LabelledBatch] = []
    for part in update.batches():
        batch = labelled(part.batch)
        loss = part.weighted(loss_of_batch(batch))
        update.backward(loss)
        losses.append(loss.detach())
        batches.append(batch)
    return torch.stack(losses).sum(), batches


class Plain(Classifying[PlainSettings]):
    """The plain loss: sequential and multitask learning differ only in the order of the examples.

    If answers are words, the loss is over the tokens of each answer and its `<eos>`.
    """

    _spelling: Spelling | None = None

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        head = model.config.head
        if head is not None and head.writes_answers:
            self._spelling = Spelling.of(head, self._split)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        documents = labelled(super().batch(examples, which, index))
        if self._spelling is None:
            return documents
        begins = [self._spelling.any_task] * len(which)
        return self._spelling.batch(self._spelling.examples(documents, begins))

    def loss(
        self, model: LanguageModel, batch: LabelledBatch | SpelledBatch, carried: Carried
    ) -> Loss:
        if isinstance(batch, SpelledBatch):
            return answer_loss(model, batch)
        return super().loss(model, batch, carried)
