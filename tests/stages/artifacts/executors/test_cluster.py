import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs, ShardJob
from stages.artifacts.store import Store
from stages.errors import ResourceError
from stages.interrupts import Interruption, Terminated
from stages.reporting import Silent
from tests.builders.processes import processes_of
from tests.stages.artifacts.executors.contract import ExecutorContract
from tests.stages.artifacts.toy import Squares, SquaresConfig, Sums

ray = pytest.importorskip("ray")

from stages.artifacts.executors import cluster  # noqa: E402
from stages.artifacts.executors.cluster import NAMESPACE, joined  # noqa: E402
from tests.ray_machines import NODE, two_machines  # noqa: E402

DRAFT = "62363b2e30ab"
"""The id of what the stage of these tests makes."""


pytestmark = pytest.mark.timeout(600)  # to start a cluster alone takes a minute on a busy machine


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    with two_machines() as both:
        yield both


class Losing(Silent):
    """Ends something once so many shards are done."""

    def __init__(self, done: int) -> None:
        self.at, self.words = done, list[str]()

    def info(self, message: str) -> None:
        self.words.append(message)

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        if done == self.at:
            self.at = -1
            self.lose()

    def lose(self) -> None:
        raise NotImplementedError


@pytest.mark.usefixtures("machines")
class TestRay(ExecutorContract):
    workers = 2
    cluster = "ray"

    @pytest.mark.endurance
    def test_any_error_passes_through_and_keeps_the_shards_before_it(
        self, store: Store, trace: Path
    ) -> None:
        super().test_any_error_passes_through_and_keeps_the_shards_before_it(store, trace)

    @pytest.mark.endurance
    def test_an_interruption_keeps_what_is_committed(self, store: Store, trace: Path) -> None:
        super().test_an_interruption_keeps_what_is_committed(store, trace)

    def test_two_workers_work_and_the_one_that_commits_opens_nothing(
        self, store: Store, trace: Path
    ) -> None:
        stage = Sums(trace, seconds=0.3)
        stage.closed_to = os.getpid()
        before = signal.getsignal(signal.SIGTERM)
        self.made(store, stage)
        assert len(processes_of(trace)) == 2
        assert signal.getsignal(signal.SIGTERM) is before
        assert not ray.is_initialized()

    def test_what_a_lost_worker_computed_is_computed_again(
        self, store: Store, trace: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        class Killing(Losing):
            def lose(self) -> None:
                for process in processes_of(trace):
                    os.kill(process, signal.SIGKILL)

        reporter = Killing(2)
        outcome = self.made(store, Sums(trace, seconds=0.1), reporter)
        assert outcome.status == "made"
        assert outcome.artifact.metrics == {"sum": 21}
        assert any("computed again" in words for words in reporter.words)
        assert not capfd.readouterr().out

    @pytest.mark.endurance
    def test_work_at_which_every_worker_is_lost_is_given_up(
        self, store: Store, trace: Path
    ) -> None:
        with pytest.raises(ResourceError, match=r"4 processes .* \(add-004\)"):
            self.made(store, Sums(trace, "add-004", SystemExit(3)))
        assert self.made(store, Sums(trace)).status == "resumed"

    @pytest.mark.endurance
    def test_workers_that_a_killed_command_left_behind_are_ended_first(
        self, store: Store, trace: Path
    ) -> None:
        with joined():
            names = [
                f"{cluster.draft_name(store.draft_folder('tokens', id))}7"
                for id in (DRAFT, "0" * 12)
            ]
            for name in names:
                settings = {
                    "name": name,
                    "namespace": NAMESPACE,
                    "num_cpus": 0,
                    "lifetime": "detached",
                }
                left = ray.remote(cluster.ShardActor).options(**settings).remote(b"", "", "0")
                assert "runs 0" in str(ray.get(left.ready.remote()).error())
        assert self.made(store, Sums(trace)).artifact.id == DRAFT
        with joined():
            assert cluster.left_behind("tokens-") == names[1:]  # that of another artifact lives
            cluster.end_actor(names[1])
            assert not cluster.left_behind("tokens-")

    def test_a_signal_is_heard_while_all_wait(
        self, store: Store, trace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        before = signal.signal(signal.SIGTERM, Interruption().handle)
        began, alarm = time.monotonic(), threading.Timer(8, os.kill, [os.getpid(), signal.SIGTERM])
        try:
            alarm.start()
            with pytest.raises(Terminated):
                self.made(store, Sums(trace, seconds=600))
        finally:
            alarm.cancel()
            signal.signal(signal.SIGTERM, before)
        assert time.monotonic() - began < 300
        with joined():
            assert not cluster.left_behind("tokens-")

    def test_workers_for_whom_there_is_no_room_hold_nothing_up(self, store: Store) -> None:
        execution = Execution(workers=5, cluster="ray")
        assert (
            make(Squares(), SquaresConfig(length=15), {}, store, execution).artifact.metrics["sum"]
            == 1015
        )


def test_a_machine_that_does_not_see_the_store_or_has_another_memlm_is_named(
    tmp_path: Path,
) -> None:
    job = ShardJob(SquaresConfig(), Inputs(), tmp_path / "store" / "draft", Execution())
    task = pickle.dumps(cluster.ShardTask(Sums(tmp_path), job, 0))
    here = os.uname().nodename
    own = version("memlm")
    unseen = cluster.ShardActor(task, str(tmp_path / "nowhere"), own).ready()
    assert unseen is not None and f"{here} does not see" in str(unseen.error())
    older = cluster.ShardActor(b"of another version", str(tmp_path), "0.0").ready()
    assert older is not None
    assert f"{here} has memlm {own}" in str(older.error()) and "runs 0.0" in str(older.error())


@pytest.mark.endurance
@pytest.mark.usefixtures("machines")
class TestLostMachine:
    def test_a_machine_that_is_lost_costs_its_shards(self, machines: Any, tmp_path: Path) -> None:
        (tmp_path / "trace").mkdir()

        class Unplugging(Losing):
            def lose(self) -> None:
                machines.remove_node(machines.list_all_nodes()[-1], allow_graceful=False)

        made = TestRay().made(
            Store(tmp_path / "store"), Sums(tmp_path / "trace", seconds=0.2), Unplugging(2)
        )
        assert made.artifact.metrics == {"sum": 21}
        machines.add_node(**NODE)
        machines.wait_for_nodes()
