"""Methods that remember documents of a stream, methods that draw from them at intervals, and
experience replay.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stages.examples.documents import LabelledBatch
from stages.examples.examples import Task
from stages.memory.episodic import EpisodicMemory, draws_due
from stages.methods.method import KeptDocuments, SideInputs, Update
from stages.methods.stream.classifying import Classifying, add_gradients, document_losses
from stages.methods.stream.config import ReplayConfig, ReplaySettings, TaskSettings
from stages.models.language_model import evaluating

WRITE, DRAW, KEEP = range(3)
"""Purposes of random numbers; each generator is seeded with the seed, its purpose and a position.
"""
AT_ONCE = 256
"""Documents of a batch that is only scored, without learning."""
T = TypeVar("T", bound=TaskSettings)
R = TypeVar("R", bound=ReplaySettings)


class KeepsDocuments(Classifying[T]):
    """A method with a memory of documents, each with the index of its task."""

    task = 0
    """Place in the stream of the task that is being learnt."""
    _read = 0

    def __init__(self, settings: T, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self.memory = EpisodicMemory()

    def begin_task(self, task: Task) -> None:
        self.task = self.place(task)

    @torch.no_grad()
    def losses(self, rows: np.ndarray) -> Tensor:
        """-log p(y | x) of documents [n] of the split under the current model, float [n]; no
        gradients or dropout.
        """
        with evaluating(self._model):
            parts = [document_losses(self._model, batch) for batch in self.batches(rows, AT_ONCE)]
        return torch.cat([torch.zeros(0, device=self._device), *parts])

    def add_gradients_of(self, update: Update, rows: np.ndarray, size: int) -> None:
        """Add the gradients of the mean loss on documents [n] of the split, read in batches of
        `size`.
        """
        for batch in self.batches(rows, size):
            update.backward(update.loss_of(batch) * len(batch.labels) / len(rows))

    def count(self, batches: Sequence[LabelledBatch]) -> tuple[int, int]:
        """Count the examples of an update; returns the total before it and after it."""
        before = self._read
        self._read += sum(len(batch.labels) for batch in batches)
        return before, self._read

    def state_dict(self) -> dict[str, Any]:
        rows, tasks = (torch.tensor(part) for part in (self.memory.rows, self.memory.tasks))
        return {"rows": rows, "tasks": tasks, "read": self._read, "task": self.task}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.memory.rows = state["rows"].numpy()
        self.memory.tasks = state["tasks"].numpy()
        self._read = state["read"]
        self.task = state["task"]

    def kept_documents(self) -> KeptDocuments:
        return KeptDocuments(self.memory.rows, self.memory.tasks)


class DrawsDocuments(KeepsDocuments[R]):
    """A method that writes each update's examples to memory, and draws at intervals. It ignores
    task boundaries.
    """

    def draws_due(self, batches: Sequence[LabelledBatch]) -> int:
        """Count the examples of an update; returns the number of draws that are due."""
        return draws_due(*self.count(batches), self.settings.every)

    def write(self, update: Update, batches: Sequence[LabelledBatch]) -> None:
        """Write the examples of an update, each with the probability `write`, until memory has
        `size` of the task.
        """
        rows = np.concatenate([batch.documents for batch in batches])
        random = self.random(WRITE, update.number)
        self.memory.write(rows, self.task, self.settings.write, random, self.settings.size)

    def draw(self, update: Update, number: int) -> np.ndarray:
        """The documents of one draw of an update; none while memory is empty."""
        return self.memory.draw(self.settings.draw_size, self.random(DRAW, update.number, number))


def learnt(update: Update) -> list[nn.Parameter]:
    """All parameters that an update changes."""
    return [parameter for group in update.optimizer.param_groups for parameter in group["params"]]


class Replay(DrawsDocuments[ReplayConfig]):
    """Sparse experience replay: after every `every` examples, a step on each batch of a draw from
    memory.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), section 3.2.
    """

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        update.change_weights()
        self.write(update, batches)
        for number in range(self.draws_due(batches)):
            for batch in self.batches(self.draw(update, number), len(batches[0].labels)):
                update.backward(update.loss_of(batch))
                update.change_weights()
        return loss
