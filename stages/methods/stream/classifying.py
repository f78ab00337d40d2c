"""Learning the labels of documents: the base of all methods for streams of tasks, and plain steps."""

from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.examples.documents import Documents, LabelledBatch
from stages.examples.examples import Batch, Examples, Task
from stages.methods.method import BatchIndex, BatchLayout, Carried, LearnsTasks, Method, ParameterGroup, Update
from stages.methods.stream.config import PlainSettings, TaskSettings
from stages.methods.stream.spelled import SpelledBatch, Spelling, answer_loss
from stages.models.config import BackboneConfig
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import LanguageModel

T = TypeVar("T", bound=TaskSettings)


class Classifying(Method[T]):
    """Mean of -log p(y | x) over the documents of a batch; no action between tasks."""

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup([weight for weight in model.parameters() if weight.requires_grad])]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        assert isinstance(batch, LabelledBatch)
        return F.cross_entropy(model.label_scores(batch), batch.labels), Carried()


def document_losses(model: LanguageModel, batch: LabelledBatch) -> Tensor:
    """-log p(y | x) of each document of a batch, float [B], in nats; for a span the mean over its two ends.

    Their mean is the loss of `Classifying`. A method that weighs documents overrides `loss` with a mean of its own.
    """
    losses = F.cross_entropy(model.label_scores(batch), batch.labels, reduction="none")
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


def add_gradients(update: Update) -> tuple[Tensor, list[LabelledBatch]]:
    """Add the gradients of an update's batches; returns their mean loss, a scalar, and the batches."""
    losses, read = list[Tensor](), list[LabelledBatch]()
    for batch in update.batches():
        assert isinstance(batch, LabelledBatch)
        loss = update.loss(batch) / update.accumulate
        update.backward(loss)
        losses.append(loss.detach())
        read.append(batch)
    return torch.stack(losses).sum(), read


class Plain(Classifying[PlainSettings], LearnsTasks):
    """The plain loss: sequential and multitask learning differ only in the order of the examples.

    If answers are words, the loss is over the tokens of each answer and its `<eos>`.
    """

    _spelling: Spelling | None = None

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        if isinstance(head := model.config.head, LanguageSettings):
            self._spelling = Spelling.of(head, cast(Documents, tasks[0].examples))

    def begin_task(self, task: Task) -> None:
        """Do nothing."""

    def end_task(self, task: Task) -> None:
        """Do nothing."""

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        read = super().batch(examples, which, index)
        if self._spelling is None:
            return read
        assert isinstance(read, LabelledBatch)
        return self._spelling.batch(self._spelling.examples(read, [self._spelling.any_task] * len(which)))

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        if isinstance(batch, SpelledBatch):
            return answer_loss(model, batch), Carried()
        return super().loss(model, batch, carried)
