"""Methods that keep documents of a stream, or draw from them at intervals; replay, which learns what it draws."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stages.examples.documents import Documents, LabelledBatch
from stages.examples.examples import Task
from stages.memory.episodic import EpisodicMemory, draws_due
from stages.methods.method import KeepsExamples, LearnsTasks, OwnsStep, Remembers, SideInputs, Update
from stages.methods.stream.classifying import Classifying, add_gradients, document_losses
from stages.methods.stream.config import ReplayConfig, ReplaySettings, TaskSettings
from stages.models.language_model import LanguageModel, evaluating

WRITE, DRAW, KEEP = range(3)
"""Purposes of random numbers: a generator is made anew of (seed, purpose, place)."""
AT_ONCE = 256
"""Documents that are read together, where nothing is learnt of them."""
T = TypeVar("T", bound=TaskSettings)
R = TypeVar("R", bound=ReplaySettings)


class KeepsDocuments(Classifying[T], OwnsStep, Remembers, KeepsExamples, LearnsTasks):
    """Documents that were read are in memory, each with the place of its task."""

    def __init__(self, settings: T, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self.memory = EpisodicMemory()
        self.task = 0
        """Place of the task that is learnt."""
        self._read = 0

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        first = tasks[0].examples
        assert isinstance(first, Documents)
        self._names, self._split = [task.name for task in tasks], first.of(np.arange(len(first.labels)))
        self._model, self._device, self._seed = model, next(model.parameters()).device, seed

    def begin_task(self, task: Task) -> None:
        self.task = self._names.index(task.name)

    def random(self, *purpose: int) -> np.random.Generator:
        """A generator of (seed, purpose), the same whenever it is asked for."""
        return np.random.default_rng([self._seed, *purpose])

    def batches(self, rows: np.ndarray, size: int) -> Iterator[LabelledBatch]:
        """Documents [n] of the split, in batches."""
        for start in range(0, len(rows), size):
            yield self._split.batch(rows[start : start + size]).to(self._device)

    @torch.no_grad()
    def losses(self, rows: np.ndarray) -> Tensor:
        """-log p(y | x) of documents [n] of the split as the model is now, float [n]; no gradients, no dropout."""
        with evaluating(self._model):
            parts = [document_losses(self._model, batch) for batch in self.batches(rows, AT_ONCE)]
        return torch.cat([torch.zeros(0, device=self._device), *parts])

    def count(self, batches: Sequence[LabelledBatch]) -> tuple[int, int]:
        """Count the examples of an update; returns how many had been read before it, and by its end."""
        before = self._read
        self._read += sum(len(batch.labels) for batch in batches)
        return before, self._read

    def state_dict(self) -> dict[str, Any]:
        rows, tasks = (torch.tensor(part) for part in (self.memory.rows, self.memory.tasks))
        return {"rows": rows, "tasks": tasks, "read": self._read, "task": self.task}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.memory.rows, self.memory.tasks = state["rows"].numpy(), state["tasks"].numpy()
        self._read, self.task = state["read"], state["task"]

    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        return self.memory.rows, self.memory.tasks


class DrawsDocuments(KeepsDocuments[R]):
    """It writes what an update has read, and draws every so many examples. The borders of tasks mean nothing to it."""

    def end_task(self, task: Task) -> None:
        """Nothing ends: the memory is of all tasks."""

    def draws_due(self, batches: Sequence[LabelledBatch]) -> int:
        """Count the examples of an update; returns how many draws fall due with it."""
        return draws_due(*self.count(batches), self.settings.every)

    def write(self, update: Update, batches: Sequence[LabelledBatch]) -> None:
        """Write the examples of an update, each with the probability `write`, until memory has `size` of the task."""
        rows, random = np.concatenate([batch.documents for batch in batches]), self.random(WRITE, update.number)
        self.memory.write(rows, self.task, self.settings.write, random, self.settings.size)

    def draw(self, update: Update, number: int, size: int) -> Iterator[LabelledBatch]:
        """The examples of one draw of an update, in batches of `size`; none while memory is empty."""
        drawn = max(1, int(self.settings.rate * self.settings.every))
        return self.batches(self.memory.draw(drawn, self.random(DRAW, update.number, number)), size)


def learnt(update: Update) -> list[nn.Parameter]:
    """All parameters that an update changes."""
    return [parameter for group in update.optimizer.param_groups for parameter in group["params"]]


class Replay(DrawsDocuments[ReplayConfig]):
    """Every `every` examples, a step on each batch of a draw from memory.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), section 3.2: sparse experience replay.
    """

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        update.change_weights()
        self.write(update, batches)
        for number in range(self.draws_due(batches)):
            for batch in self.draw(update, number, len(batches[0].labels)):
                update.backward(update.loss(batch))
                update.change_weights()
        return loss
