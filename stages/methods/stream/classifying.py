"""Learning the labels of documents: the base of all methods for streams of tasks, and plain steps."""

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from stages.examples.documents import LabelledBatch
from stages.examples.examples import Batch
from stages.methods.method import BatchLayout, Carried, Method, ParameterGroup, Update
from stages.methods.stream.config import TaskSettings
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

T = TypeVar("T", bound=TaskSettings)


class Classifying(Method[T]):
    """Mean of -log p(y | x) over the documents of a batch; nothing happens between tasks."""

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup([weight for weight in model.parameters() if weight.requires_grad])]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        assert isinstance(batch, LabelledBatch)
        return F.cross_entropy(model.label_scores(batch), batch.labels), Carried()


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


class Plain(Classifying[TaskSettings]):
    """Nothing but the loss: sequential and multitask learning differ in the order of the examples."""
