import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.executor import StageRun
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ResourceError
from tests.pipelines.toy import WORD, Pause, PauseConfig

pytest.importorskip("ray")

from pipelines import cluster
from pipelines.cluster import SendingReporter, run_task
from stages.artifacts.executors.machines import Place


class Queue:
    """A Ray queue whose actor is here, or, as ray.get says, cannot be reached."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.actor = self.put_nowait = self

    def remote(self, message: Any) -> None:
        self.messages.append(message)


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> Queue:
    def get(message: Any, timeout: float) -> None:
        raise cluster.RayError

    monkeypatch.setattr(cluster.ray, "get", get)
    return Queue()


def packed(folder: Path, reads: list[Path], command: list[str]) -> bytes:
    run = StageRun("pause", Pause(folder), PauseConfig(name="a"), {}, ("pause",))
    return pickle.dumps((run, Store(folder / "store"), Execution(), reads, command))


def test_every_word_is_sent_and_progress_once_a_second(monkeypatch: pytest.MonkeyPatch, unheard: Queue) -> None:
    seconds = iter([5.0, 5.0, 5.5, 6.5, 6.5, 7.0, 7.0])
    monkeypatch.setattr(cluster.time, "monotonic", lambda: next(seconds))
    reporter = SendingReporter(unheard, "a")
    reporter.progress(1, 9, "steps")
    reporter.progress(2, 9, "steps")
    reporter.warning("few")
    reporter.progress(3, 9, "steps", loss=1.5)
    reporter.progress(4, 9, "steps")
    reporter.close()
    assert unheard.messages == [
        ("a", "", (), {}),
        ("a", "progress", (1, 9, "steps"), {}),
        ("a", "warning", ("few",), {}),
        ("a", "progress", (3, 9, "steps"), {"loss": 1.5}),
        ("a", "progress", (4, 9, "steps"), {}),
    ]


def test_a_process_that_would_not_make_the_same_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unheard: Queue
) -> None:
    monkeypatch.setattr(sys, "argv", ["memlm"])
    monkeypatch.chdir(tmp_path)
    here, place, missing = os.uname().nodename, Place.of_this_process(), tmp_path / "tokens" / "x"
    for task, there, says in (
        (b"of another version", place._replace(memlm="0.0"), "this command runs 0.0"),
        (packed(tmp_path, [missing], ["run"]), place, f"{here} does not see {missing}"),
    ):
        error = run_task(task, there, None, unheard, "pause").error()
        assert isinstance(error, ResourceError) and says in str(error)
    assert not list(tmp_path.iterdir())


def test_who_is_not_heard_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unheard: Queue) -> None:
    monkeypatch.setattr(sys, "argv", ["memlm"])
    monkeypatch.setenv(WORD, "before")
    monkeypatch.chdir(tmp_path)
    task = packed(tmp_path, [tmp_path], ["run", "x"])
    reference, status, _ = run_task(task, Place.of_this_process(), {**os.environ, WORD: "w"}, unheard, "pause")
    assert status == "made" and (tmp_path / "store" / reference / "manifest.json").is_file()
    assert (tmp_path / "a-began").read_text().split("\n")[1:] == ["w", "run", "x"]
