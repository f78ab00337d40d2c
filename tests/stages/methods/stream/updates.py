"""Updates of a small stream that tests watch: no loop, no files."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from stages.examples.cutting import Cutting
from stages.examples.documents import Documents, LabelledBatch
from stages.examples.examples import Batch, Task
from stages.methods import METHODS
from stages.methods.method import Carried, Method, UpdateBatch
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel

WORDS, LABELS, SIZE = 12, 4, 4


def stream() -> list[Task]:
    """Two tasks of 20 and 12 documents of two to five tokens."""
    random = np.random.default_rng(0)
    offsets = np.concatenate(([0], np.cumsum(random.integers(2, 6, 32))))
    split = {
        "ids": random.integers(0, WORDS, int(offsets[-1])),
        "doc_offsets": offsets,
        "labels": np.concatenate((random.integers(0, 2, 20), random.integers(2, 4, 12))),
        "tasks": np.repeat([0, 1], [20, 12]),
    }
    return [
        Task(name, examples)
        for name, examples in zip(
            "ab", Documents.open(split, 0, Cutting("windows", 5, 5)).tasks(), strict=True
        )
    ]


def model_for(method: str, **settings: object) -> tuple[LanguageModel, Method]:
    """A tiny model in float64, and the method that trains it."""
    torch.manual_seed(0)
    chosen = METHODS.settings(method).model_validate({"method": method} | settings)
    config = parse_model(
        {"layers": 1, "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.0}
    ).sized(WORDS, 5)
    model = LanguageModel(config.model_copy(update={"head": chosen.head(LABELS)})).double()
    return model, METHODS.load(method)(chosen)


class Watched:
    """An update of plain gradient descent; says what was learnt, batch by batch."""

    accumulate = 1

    def __init__(self, model: LanguageModel, method: Method, lr: float = 0.1) -> None:
        self.model, self.method, self.number = model, method, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.batch: LabelledBatch
        self.learnt: list[list[int]] = []
        """Documents of each loss that was asked for."""
        self.steps = 0

    def batches(self) -> Iterator[UpdateBatch]:
        yield UpdateBatch(self.batch)

    def loss(self, part: UpdateBatch) -> Tensor:
        return self.loss_of(part.batch)

    def loss_of(self, batch: Batch) -> Tensor:
        assert isinstance(batch, LabelledBatch)
        self.learnt.append(batch.documents.tolist())
        return self.method.loss(self.model, batch, Carried()).total

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def plain_step(self) -> Tensor:
        loss = self.loss(UpdateBatch(self.batch))
        self.backward(loss)
        self.change_weights()
        return loss.detach()

    def change_weights(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1

    def read(self, batch: LabelledBatch) -> Tensor:
        """Make an update with a batch."""
        self.batch = batch
        loss = self.method.step(self)
        self.number += 1
        return loss


def read_stream(update: Watched, tasks: list[Task]) -> None:
    """Read all tasks once, in order, four examples an update."""
    update.method.begin_stream(update.model, tasks, 3)
    for task in tasks:
        update.method.begin_task(task)
        for start in range(0, task.examples.count, SIZE):
            update.read(task.examples.batch(np.arange(start, start + SIZE)))
        update.method.end_task(task)
