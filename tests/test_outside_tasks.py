"""A method from outside the package that learns a stream of tasks and replays examples that it keeps."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.examples.cutting import WindowSettings
from stages.examples.examples import Batch, Task
from stages.examples.streams import Streams
from stages.methods.config import Batches, WithoutNeighbors
from stages.methods.method import (
    BatchLayout,
    Carried,
    LearnsTasks,
    Method,
    OwnsStep,
    Remembers,
    Update,
)
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run
from tests.stages.training.test_loop import Crash, Notes, crash_at, outcome, settings, splits

REPLAYED = 2


class ReplayConfig(WithoutNeighbors):
    """Every example is kept."""

    method: Literal["replay"] = "replay"

    def sized(self, model: BackboneConfig, batches: Batches) -> "ReplayConfig":
        return self


class Replay(Method[ReplayConfig], OwnsStep, Remembers, LearnsTasks):
    """Plain loss of each batch and of a few examples drawn from all that were read before."""

    def __init__(self, settings: ReplayConfig) -> None:
        super().__init__(settings)
        self.rows: list[tuple[Tensor, Tensor]] = []
        self.events: list[str] = []

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        return model.loss(batch.rows(model.read(batch).hidden), batch.rows(batch.targets)), Carried()

    def step(self, update: Update) -> Tensor:
        (batch,) = update.batches()
        loss = update.loss(batch)
        update.backward(loss)
        if self.rows:
            drawn = np.random.default_rng(len(self.rows)).integers(len(self.rows), size=REPLAYED)
            inputs, targets = (torch.stack([self.rows[i][part] for i in drawn]) for part in (0, 1))
            update.backward(update.loss(Batch(inputs=inputs, targets=targets, places=np.zeros(inputs.shape, np.int64))))
        update.change_weights()
        self.rows += zip(batch.inputs, batch.targets, strict=True)
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        inputs, targets = (torch.stack([row[part] for row in self.rows]) for part in (0, 1))
        return {"inputs": inputs, "targets": targets, "events": self.events}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rows = list(zip(state["inputs"], state["targets"], strict=True))
        self.events = list(state["events"])

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        self.names = [task.name for task in tasks]

    def begin_task(self, task: Task) -> None:
        self.events.append(f"{len(self.rows)} before {task.name}")

    def end_task(self, task: Task) -> None:
        self.events.append(f"{len(self.rows)} after {task.name}")


def trained(folder: Path, at: Callable[[int], None] = lambda step: None) -> Trainer:
    """A trainer of two tasks: the first third of a text, and the rest."""
    folder.mkdir(exist_ok=True)
    config, data = settings(memory=None), splits()
    torch.manual_seed(config.seed)
    cutting = config.model.cutting(WindowSettings(8, 8))
    tasks = [
        Task(name, Streams(part, 0, cutting)) for name, part in zip("ab", np.split(data.train, [100]), strict=True)
    ]
    model, valid, method = LanguageModel(config.model), Streams(data.valid, 0, cutting), Replay(ReplayConfig())
    fabric = make_fabric(torch.device("cpu"))
    run = Run(fabric, config, model, method, tasks, valid, folder, Notes(at=at), 0.0)
    trainer = Trainer(run)
    trainer.train()
    return trainer


def kept(trainer: Trainer) -> list[Any]:
    method = trainer.run.method
    assert isinstance(method, Replay)
    return [*(part.tolist() for pair in method.rows for part in pair), method.events]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    folder = tmp_path_factory.mktemp("replay") / "whole"
    trainer = trained(folder)
    return outcome(folder, trainer), kept(trainer)


def test_tasks_follow_each_other_each_for_its_share_of_the_updates(whole: tuple[Any, list[Any]]) -> None:
    """12 and 25 examples, 20 updates of 4 examples: 6 and 14."""
    assert whole[1][-1] == ["0 before a", "24 after a", "24 before b", "80 after b"]
    inputs = [tuple(row) for row in whole[1][:-1:2]]
    first = {tuple(row) for row in np.concatenate(([0], splits().train))[:96].reshape(12, 8).tolist()}
    assert [row in first for row in inputs[:24]] == [True] * 24


@pytest.mark.parametrize("step", [3, 6, 7, 20])
def test_a_killed_run_ends_with_the_same_bytes_and_examples(
    step: int, whole: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    with pytest.raises(Crash):
        trained(tmp_path / "parts", crash_at(step))
    trainer = trained(tmp_path / "parts")
    assert (outcome(tmp_path / "parts", trainer), kept(trainer)) == whole


def test_one_that_forgot_them_would_differ(
    whole: tuple[Any, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Crash):
        trained(tmp_path / "parts", crash_at(7))
    monkeypatch.setattr(Replay, "load_state_dict", lambda *_: None)
    assert outcome(tmp_path / "parts", trained(tmp_path / "parts"))[0] != whole[0][0]
