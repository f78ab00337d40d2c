"""GEM: a gradient never points apart from the gradient on what is kept of each task before."""

import numpy as np
import torch
from torch import Tensor, nn

from stages.examples.documents import Documents
from stages.examples.examples import Task
from stages.methods.method import Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import GemConfig
from stages.methods.stream.memory import KEEP, KeepsDocuments, learnt
from stages.methods.stream.projection import among, put_gradient, take_gradient


class Gem(KeepsDocuments[GemConfig]):
    """At the end of a task a share of its documents is kept; each step reads all that are kept.

    Source: Lopez-Paz and Ranzato 2017 (arXiv:1706.08840), algorithm 1.
    """

    def end_task(self, task: Task) -> None:
        count, random = task.examples.count, self.random(KEEP, self.task)
        chosen = random.choice(count, max(1, int(self.settings.share * count)), replace=False)
        assert isinstance(task.examples, Documents)
        self.memory.write(task.examples.chosen[chosen], self.task, 1.0, random)

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        self.count(batches)
        if len(self.memory):
            weights = learnt(update)
            gradient = take_gradient(weights)
            before = [self._of_task(update, weights, task, len(batches[0].labels)) for task in range(self.task)]
            put_gradient(weights, among(gradient, torch.stack(before), self.settings.margin))
        update.change_weights()
        return loss

    def _of_task(self, update: Update, weights: list[nn.Parameter], task: int, size: int) -> Tensor:
        """The gradient of the mean loss on what is kept of one task."""
        rows = self.memory.rows[self.memory.tasks == task]
        for batch in self.batches(np.asarray(rows), size):
            update.backward(update.loss(batch) * len(batch.labels) / len(rows))
        return take_gradient(weights)
