"""Learning the labels of documents: the base of all methods for streams of tasks, and plain steps."""

from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.examples.batching import shuffled_order
from stages.examples.documents import LabelledBatch
from stages.examples.examples import Batch, Examples
from stages.methods.method import (
    BatchIndex,
    BatchLayout,
    Carried,
    EncodedTokens,
    Method,
    ParameterGroup,
    Update,
)
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

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        return shuffled_order(count, size, seed, epoch)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        return examples.batch(which)

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        assert isinstance(batch, LabelledBatch)
        return F.cross_entropy(model.label_scores(batch), batch.labels), Carried()

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        """The text's, which it does not learn."""
        return model.log_prob(read.key("hidden"), read.targets)[0]


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
