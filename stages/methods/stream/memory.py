"""Methods that write what they have read into an episodic memory, and draw from it at intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from stages.examples.documents import Documents, LabelledBatch
from stages.examples.examples import Task
from stages.memory.episodic import EpisodicMemory, draws_due
from stages.methods.method import KeepsExamples, LearnsTasks, OwnsStep, Remembers, SideInputs, Update
from stages.methods.stream.classifying import Classifying
from stages.methods.stream.config import ReplaySettings
from stages.models.language_model import LanguageModel

WRITE, DRAW = range(2)
"""Purposes of random numbers: a generator is made anew of (seed, purpose, update)."""
R = TypeVar("R", bound=ReplaySettings)


class WithMemory(Classifying[R], OwnsStep, Remembers, KeepsExamples, LearnsTasks):
    """Its step learns, writes what it has read, and may draw. Tasks matter to it only where others ask of its rows."""

    def __init__(self, settings: R, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self.memory = EpisodicMemory()
        self._read = self._task = 0

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task]) -> None:
        first = tasks[0].examples
        assert isinstance(first, Documents)
        self._names, self._split = [task.name for task in tasks], first.of(np.arange(len(first.labels)))
        self._device = next(model.parameters()).device

    def begin_task(self, task: Task) -> None:
        self._task = self._names.index(task.name)

    def end_task(self, task: Task) -> None:
        """Nothing ends: the memory is of all tasks."""

    def draws_due(self, batches: Sequence[LabelledBatch]) -> int:
        """Count the examples of an update; returns how many draws fall due with it."""
        before = self._read
        self._read += sum(len(batch.labels) for batch in batches)
        return draws_due(before, self._read, self.settings.every)

    def write(self, update: Update, batches: Sequence[LabelledBatch]) -> None:
        """Write the examples of an update, each with the probability `write`."""
        rows = np.concatenate([batch.documents for batch in batches])
        random = np.random.default_rng([update.seed, WRITE, update.number])
        self.memory.write(rows, self._task, self.settings.write, random)

    def draw(self, update: Update, number: int, size: int) -> Iterator[LabelledBatch]:
        """The examples of one draw of an update, in batches of `size`; none while memory is empty."""
        random = np.random.default_rng([update.seed, DRAW, update.number, number])
        rows = self.memory.draw(max(1, int(self.settings.rate * self.settings.every)), random)
        for start in range(0, len(rows), size):
            yield self._split.batch(rows[start : start + size]).to(self._device)

    def state_dict(self) -> dict[str, Any]:
        rows, tasks = (torch.from_numpy(part) for part in (self.memory.rows, self.memory.tasks))
        return {"rows": rows, "tasks": tasks, "read": self._read, "task": self._task}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.memory.rows, self.memory.tasks = state["rows"].numpy(), state["tasks"].numpy()
        self._read, self._task = state["read"], state["task"]

    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        return self.memory.rows, self.memory.tasks
