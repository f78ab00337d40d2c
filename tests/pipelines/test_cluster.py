import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.executor import LocalExecutor, Result, StageRun
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import DataError, ResourceError
from stages.interrupts import Terminated, raise_terminated
from stages.reporting import Reporter, Silent
from tests.pipelines.toy import WORD, Pause, PauseConfig
from tests.stages.artifacts.toy import SquaresConfig, Sums

ray = pytest.importorskip("ray")

from pipelines.cluster import ClusterExecutor  # noqa: E402
from tests.ray_machines import two_machines  # noqa: E402

HOW = Execution(device="cpu", workers=2, cluster="ray")


pytestmark = pytest.mark.timeout(600)  # to start a cluster alone takes a minute on a busy machine


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    with two_machines() as both:
        yield both


class Listening(Silent):
    def __init__(self) -> None:
        self.words = list[str]()
        self.steps = list[int]()

    def info(self, message: str) -> None:
        if message != "waiting until the cluster has room, or a process has started":  # as on a busy machine
            self.words.append(message)

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        self.steps.append(done)


class Recipe:
    """Stages that read nothing of each other, in a store and with reporters of their own."""

    def __init__(self, folder: Path) -> None:
        self.trace = folder / "trace"
        self.trace.mkdir()
        self.store = Store(folder / "store")
        self.told: dict[str, Listening] = defaultdict(Listening)

    @contextmanager
    def reporters(self, name: str) -> Iterator[Reporter]:
        yield self.told[name]

    def pause(self, name: str, seconds: float = 0.0, of: str | None = None, **behaviour: Any) -> StageRun:
        return StageRun(name, Pause(self.trace, seconds, **behaviour), PauseConfig(name=of or name), {}, ("pause",))

    def executor(self, how: Execution = HOW) -> ClusterExecutor:
        return ClusterExecutor(self.store, how, self.reporters)

    def run(self, *runs: StageRun) -> list[Result]:
        waiting, done = list(runs), list[Result]()
        with closing(self.executor()) as executor:
            while len(done) < len(runs):
                begun = executor.begin(waiting)
                waiting = [run for run in waiting if run not in begun]
                done.append(executor.finished())
        return done

    def traces(self, what: str) -> dict[str, Path]:
        return {file.name.rpartition("-")[0]: file for file in self.trace.glob(f"*-{what}")}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return Recipe(tmp_path)


@pytest.mark.usefixtures("machines")
class TestCluster:
    def test_stages_run_at_the_same_time_each_in_a_process_of_its_own(
        self, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(WORD, "here")
        text = tmp_path / "text"
        text.touch()
        here = replace(recipe.pause("here"), references={"file": [str(text)]})
        runs = [recipe.pause("a", 1, until="b"), recipe.pause("b", 1, until="a"), here]
        done = {one.name: one for one in recipe.run(*runs)}
        assert {name: one.status for name, one in done.items()} == dict.fromkeys(["a", "b", "here"], "made")
        began, ended = recipe.traces("began"), recipe.traces("ended")
        assert began["here"].stat().st_mtime > min(ended[name].stat().st_mtime for name in "ab")  # two at a time
        notes = {name: file.read_text().split("\n") for name, file in began.items()}
        assert len({notes[name][0] for name in notes} | {str(os.getpid())}) == 4
        assert {name: note[1] for name, note in notes.items()} == {"a": "", "b": "", "here": "here"}
        assert notes["a"][2:] == sys.argv[1:]
        assert all(recipe.told[name].words == ["has paused"] for name in done)
        assert all(recipe.told[name].steps[-1] == 9 and done[name].seconds >= 1 for name in "ab")
        assert not ray.is_initialized()

        (tmp_path / "alone").mkdir()
        alone = Recipe(tmp_path / "alone")
        local = LocalExecutor(alone.store, replace(HOW, cluster=None, workers=1), alone.reporters)
        for name in "ab":
            local.begin([alone.pause(name)])
            artifact, other = local.finished().artifact, done[name].artifact
            assert artifact.reference == other.reference
            assert artifact.manifest.files == other.manifest.files

    def test_shards_of_a_stage_are_computed_by_workers_and_stages_that_make_the_same_make_it_once(
        self, recipe: Recipe
    ) -> None:
        sums = StageRun("sums", Sums(recipe.trace), SquaresConfig(length=7), {}, ("sums",))
        done = recipe.run(sums, recipe.pause("c", 1, "twin"), recipe.pause("d", 1, "twin"))
        assert {one.name: one.status for one in done} == {"sums": "made", "c": "made", "d": "cached"}
        assert next(one for one in done if one.name == "sums").artifact.metrics == {"sum": 21}
        assert len(list(recipe.trace.glob("add-*"))) == 7
        assert recipe.told["sums"].steps[-1] == 8
        assert not recipe.told["d"].words

    @pytest.mark.endurance
    def test_the_first_error_ends_all_and_the_others_save(self, recipe: Recipe) -> None:
        failing = recipe.pause("bad", 3, until="long", error=DataError("line 3 is bad"))
        with pytest.raises(DataError, match="line 3 is bad"):
            recipe.run(recipe.pause("long", 600), failing, recipe.pause("later"))
        assert recipe.traces("saved").keys() == {"long"}
        assert recipe.traces("began").keys() == {"long", "bad"}
        assert recipe.told["bad"].words == ["failed"]
        (word,) = recipe.told["long"].words
        assert word.startswith("is interrupted")

    def test_a_signal_lets_all_save(self, recipe: Recipe) -> None:
        before = signal.signal(signal.SIGTERM, raise_terminated)

        def terminate() -> None:
            while recipe.traces("began").keys() != {"a", "b"}:
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGTERM)

        alarm = threading.Thread(target=terminate, daemon=True)
        try:
            alarm.start()
            with pytest.raises(Terminated):
                recipe.run(recipe.pause("a", 600), recipe.pause("b", 600), recipe.pause("c"))
        finally:
            signal.signal(signal.SIGTERM, before)
        assert recipe.traces("saved").keys() == {"a", "b"}
        assert not ray.is_initialized()

    @pytest.mark.endurance
    def test_a_lost_process_is_replaced_but_not_for_ever(self, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stages.artifacts.executors.machines.MOST_LOSSES", 1)
        lost = "its process on the cluster was lost; it goes on from what is saved"
        once = recipe.pause("once", deaths=1)
        leaving = recipe.pause("leaving", error=Terminated())
        (done,) = recipe.run(once)
        assert (done.status, recipe.told["once"].words) == ("resumed", [lost, "has paused"])
        with pytest.raises(ResourceError, match=r"2 processes .* \(leaving\)"):
            recipe.run(leaving)
        assert recipe.told["leaving"].words == [lost, "failed"]


def test_what_is_there_needs_no_cluster(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalExecutor(recipe.store, replace(HOW, cluster=None, workers=1), recipe.reporters)
    local.begin([recipe.pause("a")])
    local.finished()
    monkeypatch.setattr(ray, "init", None)
    assert [one.status for one in recipe.run(recipe.pause("a"), recipe.pause("b", of="a"))] == ["cached"] * 2
