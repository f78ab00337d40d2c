"""A method from outside the package that learns a stream of tasks, and replays the documents that
it finds hardest.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor

from stages.artifacts.store import Store
from stages.examples.documents import Documents
from stages.examples.examples import Task
from stages.methods import METHODS
from stages.methods.method import Carried, Update
from stages.methods.stream.classifying import add_gradients, document_losses
from stages.methods.stream.config import TaskSettings
from stages.methods.stream.memory import KeepsDocuments
from stages.registry import Part
from stages.training.loop import Trainer
from tests.builders.kills import killed
from tests.cli.conftest import Memlm, logs, memlm  # noqa: F401
from tests.stages.methods.stream.contract import TaskMethodContract
from tests.stages.methods.stream.updates import Watched as Watch
from tests.stages.methods.stream.updates import model_for, read_stream, stream
from tests.stages.small_tasks import TASKS, bytes_of, write_task

SMALL = (
    "--segment-length",
    12,
    "--batch-tokens",
    96,
    "--epochs",
    2,
    "--lr",
    0.01,
    "--set",
    "schedule.name=constant",
)
SIZES = (
    word
    for size in ("layers=1", "width=16", "heads=2", "ffn_width=16")
    for word in ("--set", f"model.{size}")
)
SMALL += tuple(SIZES)


class HardestSettings(TaskSettings):
    """When a task ends, some of its documents are kept."""

    method: Literal["hardest"] = "hardest"
    share: float = Field(0.2, gt=0, le=1)
    """Share of the documents of a task that are kept."""
    drawn: int = Field(4, gt=0)
    """Documents of memory that an update learns beside its own."""


class Hardest(KeepsDocuments[HardestSettings]):
    """Those with the largest loss are kept; each update has some of them, in turn."""

    _turn = 0
    """Documents of memory that were learnt again so far."""

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        self.count(batches)
        if len(self.memory):
            drawn = min(self.settings.drawn, len(self.memory))
            turns = self._turn + np.arange(drawn)
            self._turn += drawn
            rows = self.memory.rows[turns % len(self.memory)]
            for batch in self.batches(rows, len(rows)):
                update.backward(update.loss_of(batch))
        update.change_weights()
        return loss

    def end_task(self, task: Task) -> None:
        assert isinstance(task.examples, Documents)
        rows = task.examples.chosen
        hardest = np.argsort(-self.losses(rows).cpu().numpy(), kind="stable")[
            : round(self.settings.share * len(rows))
        ]
        self.memory.write(rows[hardest], self.task, 1.0, self.random())

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"turn": self._turn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._turn = state["turn"]


@pytest.fixture(scope="class")
def registered() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patched:
        part = Part(f"{__name__}:HardestSettings", f"{__name__}:Hardest")
        patched.setitem(METHODS.targets, "hardest", part)
        yield "hardest"


class TestHardest(TaskMethodContract):
    @pytest.fixture(scope="class")
    @classmethod
    def name(cls, registered: str) -> str:
        return registered


def test_losses_by_document_are_those_of_a_loop_and_their_mean_is_the_loss(registered: str) -> None:
    model, method = model_for(registered)
    read_stream(Watch(model, method), stream())
    rows, found = np.array([3, 0, 19, 31]), []
    for row in rows:
        batch = method._split.batch(np.array([row]))  # type: ignore[attr-defined]
        with torch.no_grad():
            found.append(-float(model.label_scores(batch)[0].log_softmax(0)[batch.labels[0]]))
    np.testing.assert_allclose(method.losses(rows).numpy(), found, rtol=1e-12)  # type: ignore[attr-defined]
    assert len(method.losses(rows[:0])) == 0  # type: ignore[attr-defined]
    batch = stream()[0].examples.batch(np.arange(7))
    losses = document_losses(model, batch)  # type: ignore[arg-type]
    assert losses.shape == (7,) and losses.requires_grad
    whole = method.loss(model, batch, Carried()).mean
    torch.testing.assert_close(losses.mean(), whole, rtol=1e-12, atol=0)


def test_a_plugin_is_trained_killed_resumed_and_scored_by_the_command(
    registered: str,
    memlm: Memlm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = [
        write_task(tmp_path / name, TASKS[name], {"train": 40, "test": 20}) for name in TASKS
    ]
    made, update = [], Trainer._update
    for place, kills in (("whole", ()), ("parts", (3, 10, 13))):
        monkeypatch.setenv("MEMLM_STORE", str(tmp_path / place))
        tokens = memlm(
            "tokenize", "--tasks", *folders, "--tokenizer", "word", "--min-count", 1
        ).reference
        command = ("train", tokens, "--method", registered, *SMALL, "--set", "memory.share=0.3")
        for kill in kills:
            with monkeypatch.context() as patched:
                patched.setattr(
                    Trainer, "_update", lambda trainer, last=kill: killed(trainer, last, update)
                )
                patched.setattr(
                    "stages.training.checkpoint.Saver.is_due", lambda saver, progress: True
                )
                assert memlm(*command).code == 130
        ended = memlm(*command)
        assert bool(kills) == ("resumed: 13 of" in ended.err)
        made.append(Store(tmp_path / place).get(ended.reference))
    whole, parts = made
    assert bytes_of(whole) == bytes_of(parts)
    scored = json.loads(memlm("evaluate-tasks", parts.reference, "--json").out)["metrics"]
    (row,) = scored["rows"]
    assert scored["method"] == registered and row["matrix"][-1][-1] > row["matrix"][0][-1]
