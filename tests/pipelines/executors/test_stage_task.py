import os
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ResourceError
from tests.pipelines.executors.toy import WORD, Pause, PauseConfig

pytest.importorskip("ray")

from pipelines.executors import stage_task
from pipelines.executors.stage_task import Collected, StageTask, Told, posted, run_task
from stages.artifacts.executors.machines import Place


class Nobody:
    """A board that cannot be reached."""

    class post:
        @staticmethod
        def remote(*values: object) -> None:
            raise stage_task.RayError


def test_of_progress_the_latest_is_posted_and_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = Collected()
    collected.progress(1, 9, "steps")
    collected.progress(2, 9, "steps", loss=1.5)
    collected.warning("few")
    collected.progress(3, 9, "steps")
    warned = Told("warning", ("few",), {})
    assert collected.take() == [
        Told("progress", (2, 9, "steps"), {"loss": 1.5}),
        warned,
        Told("progress", (3, 9, "steps"), {}),
    ]
    assert not collected.take()

    monkeypatch.setattr(stage_task, "SECONDS_BETWEEN_POSTS", 0.01)
    posts: list[Sequence[Told]] = []
    with posted(posts.append) as reporter:
        while not posts:
            time.sleep(0.01)
        assert posts == [[]], "that it has begun"
        reporter.info("one")
        while len(posts) < 2:
            time.sleep(0.01)
        monkeypatch.setattr(stage_task, "SECONDS_BETWEEN_POSTS", 60)
        reporter.info("two")
    assert [told.values for post in posts for told in post] == [("one",), ("two",)]


def test_a_process_that_would_not_make_the_same_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["memlm"])
    monkeypatch.chdir(tmp_path)
    here = os.uname().nodename
    place = Place(str(tmp_path), Place.of_this_process().memlm)
    task = StageTask(
        Pause(tmp_path), PauseConfig(), {}, Store(tmp_path / "store"), Execution(), [tmp_path / "tokens" / "x"], ["run"]
    )
    for packed, there, says in (
        (b"of another version", place._replace(memlm="0.0"), "this command runs 0.0"),
        (pickle.dumps(task), place, f"{here} does not see {tmp_path / 'tokens' / 'x'}"),
    ):
        error = run_task(packed, there, None, Nobody(), "pause").error()
        assert isinstance(error, ResourceError) and says in str(error)
    assert not list(tmp_path.iterdir())


def test_who_is_not_heard_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["memlm"])
    monkeypatch.setenv(WORD, "before")
    monkeypatch.chdir(tmp_path)
    task = StageTask(
        Pause(tmp_path), PauseConfig(name="a"), {}, Store(tmp_path / "store"), Execution(), [tmp_path], ["run", "x"]
    )
    made = run_task(pickle.dumps(task), Place.of_this_process(), {**os.environ, WORD: "w"}, Nobody(), "pause")
    assert made.status == "made" and (tmp_path / "store" / made.reference / "manifest.json").is_file()
    assert (tmp_path / "a-began").read_text().split("\n")[1:] == ["w", "run", "x"]
