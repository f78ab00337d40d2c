"""ELLE: a language model that grows before a domain, recovers on memory, and learns together with
memory.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from stages.examples.documents import LabelledBatch, documents_of
from stages.examples.examples import Batch, Examples, Task
from stages.methods.method import BatchIndex, Carried, Loss, Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.language_config import ElleConfig
from stages.methods.stream.memory import DRAW, KEEP, KeepsDocuments
from stages.methods.stream.spelled import task_token
from stages.models.growth import grown, grown_config
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import LanguageModel

RECOVER = KEEP + 1
"""Purpose of random numbers, in addition to those of `memory`."""


class Elle(KeepsDocuments[ElleConfig]):
    """Before each domain but the first the model grows. It then learns memory alone, then the
    domain with memory.

    A prompt of the domain, one token, begins each document instead of `<eos>`. The optimizer starts
    afresh.

    Source: Qin et al. 2022 (ELLE, arXiv:2203.06311), sections 3.2 and 3.3.
    """

    _recovers = False
    """Whether the model has grown and not yet recovered."""

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        wider, deeper = self.settings.times(self.task)
        grow(self._model, wider, deeper, self.settings.noise, self._seed + self.task)
        self._recovers = self.task > 0

    def end_task(self, task: Task) -> None:
        """Keep some documents of the domain."""
        examples = documents_of(task.examples)
        random = self.random(KEEP, self.task)
        num_kept = math.ceil(self.settings.kept * examples.count)
        chosen = random.choice(examples.count, num_kept, replace=False)
        documents = examples.chosen[np.sort(chosen)]
        self.memory.write(documents, self.task, 1.0, random)

    def resize(self, model: LanguageModel, place: int) -> None:
        for task in range(1, place + 1):
            grow(model, *self.settings.times(task), 0.0, 0)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        """Documents of a domain, and documents drawn from memory."""
        documents = documents_of(examples)
        # The share is counted over all batches so far: a small batch may read none.
        per_batch = self.settings.mixed * len(which)
        num_drawn = int(per_batch * (index.number + 1)) - int(per_batch * index.number)
        replayed = self.memory.draw(num_drawn, self.random(DRAW, index.number))
        return self._prompted(np.concatenate((documents.chosen[which], replayed)))

    def _prompted(self, rows: np.ndarray) -> LabelledBatch:
        batch = self._split.batch(rows)
        head = self._model.config.head
        assert head is not None, "the method gives it one"
        return (
            prompted(batch, head, self._split.task_numbers[rows]) if self.settings.prompt else batch
        )

    def step(self, update: Update) -> Tensor:
        if self._recovers:
            self._recover(update)
        loss, _ = add_gradients(update)
        update.change_weights()
        return loss

    def _recover(self, update: Update) -> None:
        """Steps on memory alone; their learning rate is that of the update."""
        for number in range(self.settings.recovery):
            rows = self.memory.draw(
                self.settings.recovery_batch, self.random(RECOVER, self.task, number)
            )
            update.backward(update.loss_of(self._prompted(rows).to(self._device)))
            update.change_weights()
        self._recovers = False

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> Loss:
        """The mean over all tokens."""
        encoding = model.read(batch)
        mean = model.loss(batch.rows(encoding.hidden), batch.rows(batch.targets))
        return Loss.of(mean, encoding)


def grow(model: LanguageModel, wider: int, deeper: int, noise: float, seed: int) -> None:
    """Make a model wider and deeper by these factors, in place; see `grown`."""
    if wider == deeper == 1:
        return
    # the head does not grow, and is put back
    head = model.config.head
    plain = model.config.model_copy(update={"head": None})
    config = grown_config(plain, wider, deeper).model_copy(update={"head": head})

    # `to` takes the device and the dtype of a tensor
    some_weight = next(model.parameters())
    larger = LanguageModel(config).to(some_weight).train(model.training)
    weights = grown(model.state_dict(), plain, wider, deeper, noise, seed)
    larger.load_state_dict(weights)

    model.config = larger.config
    model.vocabulary = larger.vocabulary
    model.backbone = larger.backbone


def prompted(batch: LabelledBatch, head: LanguageSettings, domains: np.ndarray) -> LabelledBatch:
    """The documents, each beginning with the prompt of its domain; `domains`: their numbers, int
    [B].
    """
    inputs = batch.inputs.clone()
    inputs[:, 0] = torch.from_numpy(task_token(head, domains))
    return replace(batch, inputs=inputs)
