import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.cost import Cost
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs, ShardJob
from stages.artifacts.store import Store
from stages.errors import ResourceError
from stages.interrupts import Terminated, raise_terminated
from stages.reporting import Silent
from tests.stages.artifacts.executors.contract import ExecutorContract
from tests.stages.artifacts.executors.test_processes import processes_of
from tests.stages.artifacts.toy import Squares, SquaresConfig, Sums

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from stages.artifacts.executors import cluster  # noqa: E402

DRAFT = "72737712c9f5"
"""The id of what the stage of these tests makes."""
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """A cluster of two, of one core each."""
    try:
        both = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        both.add_node(**NODE)
        both.wait_for_nodes()
    except Exception as error:  # as where ports or shared memory are refused
        pytest.skip(f"Ray does not start here: {error}")
    os.environ["RAY_ADDRESS"] = both.address
    yield both
    del os.environ["RAY_ADDRESS"]
    both.shutdown()


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

    def test_two_workers_work_and_the_one_that_commits_opens_nothing(self, store: Store, trace: Path) -> None:
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
        assert any("lost; its shard is computed again" in words for words in reporter.words)
        assert not capfd.readouterr().out

    def test_work_at_which_every_worker_is_lost_is_given_up(self, store: Store, trace: Path) -> None:
        with pytest.raises(ResourceError, match=r"4 workers of the cluster were lost at the same work \(add-004\)"):
            self.made(store, Sums(trace, "add-004", SystemExit(3)))
        assert self.made(store, Sums(trace)).status == "resumed"

    def test_workers_that_a_killed_command_left_behind_are_ended_first(self, store: Store, trace: Path) -> None:
        with cluster.joined():
            names = [f"{cluster.draft_name(store.draft_folder('tokens', id))}7" for id in (DRAFT, "0" * 12)]
            for name in names:
                settings = {"name": name, "namespace": cluster.NAMESPACE, "num_cpus": 0, "lifetime": "detached"}
                left = ray.remote(cluster.ShardActor).options(**settings).remote(b"", cluster.Place("", "0"))
                assert "runs 0" in str(ray.get(left.ready.remote()).error())
        assert self.made(store, Sums(trace)).artifact.id == DRAFT
        with cluster.joined():
            assert cluster.left_behind("tokens-") == names[1:], "that of another artifact lives"
            cluster.end_actor(names[1])
            assert not cluster.left_behind("tokens-")

    def test_a_signal_is_heard_while_all_wait(self, store: Store, trace: Path) -> None:
        before = signal.signal(signal.SIGTERM, raise_terminated)
        began, alarm = time.monotonic(), threading.Timer(8, os.kill, [os.getpid(), signal.SIGTERM])
        try:
            alarm.start()
            with pytest.raises(Terminated):
                self.made(store, Sums(trace, seconds=60))
        finally:
            alarm.cancel()
            signal.signal(signal.SIGTERM, before)
        assert time.monotonic() - began < 45
        with cluster.joined():
            assert not cluster.left_behind("tokens-")

    def test_workers_for_whom_there_is_no_room_hold_nothing_up(self, store: Store) -> None:
        execution = Execution(workers=5, cluster="ray")
        assert make(Squares(), SquaresConfig(length=15), {}, store, execution).artifact.metrics["sum"] == 1015


def test_a_machine_that_does_not_see_the_store_or_has_another_memlm_is_named(tmp_path: Path) -> None:
    job = ShardJob(SquaresConfig(), Inputs(), tmp_path / "store" / "draft", Execution())
    task = pickle.dumps(cluster.ShardTask(Sums(tmp_path), job, 0))
    here = os.uname().nodename
    own = cluster.version("memlm")
    unseen = cluster.ShardActor(task, cluster.Place(str(tmp_path / "nowhere"), own)).ready()
    assert unseen is not None and f"{here} does not see" in str(unseen.error())
    older = cluster.ShardActor(b"of another version", cluster.Place(str(tmp_path), "0.0")).ready()
    assert older is not None and f"{here} has memlm {own}, and this command runs 0.0" in str(older.error())


def test_without_a_cluster_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**settings: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", nowhere)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ResourceError, match=r"There is no Ray cluster: start one \(ray start --head\)"):
        cluster.joined().__enter__()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(ResourceError, match=r"There is no Ray cluster at 127\.0\.0\.1:\d+: start one"):
        cluster.joined().__enter__()


class OnGpu(Sums):
    def device(self, execution: Execution) -> str:
        return "some GPU"


@pytest.mark.parametrize(
    ("cores", "workers", "each"), [([16, 16], 4, 8), ([16, 16], 3, 8), ([4, 32], 8, 1), ([2], 1, 2), ([1, 1], 9, 1)]
)
def test_workers_fit_side_by_side_on_the_machines_there_are(
    cores: list[int], workers: int, each: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": number}} for number in cores]
    nodes += [{"Alive": False, "Resources": {"CPU": 1}}, {"Alive": True, "Resources": {"memory": 5}}]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    job = ShardJob(SquaresConfig(), Inputs(), tmp_path, Execution(workers=workers))
    task = cluster.ShardTask(Sums(tmp_path), job, 0)
    assert cluster.resources(task) == {"num_cpus": each, "num_gpus": 0}
    assert cluster.pinned(task).job.execution.device == "cpu"


class Heavy(Sums):
    def cost(self, config: SquaresConfig, inputs: Inputs) -> Cost:
        return Cost(memory=10)


@pytest.mark.parametrize(
    ("room", "workers", "cores", "memory"),
    [([40, 40], 4, 8, 10), ([15, 40], 4, 16, 10), ([40, 5], 2, 16, 10), ([6], 2, 16, 6)],
)
def test_workers_take_the_memory_that_their_stage_says_and_share_cores_with_as_many_as_that_leaves_room_for(
    room: list[int], workers: int, cores: int, memory: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [{"Alive": True, "Resources": {"CPU": 16, "memory": float(size)}} for size in room]
    monkeypatch.setattr(ray, "nodes", lambda: found)
    job = ShardJob(SquaresConfig(), Inputs(), tmp_path, Execution(workers=workers))
    needs = cluster.resources(cluster.ShardTask(Heavy(tmp_path), job, 0))
    assert needs == {"num_cpus": cores, "num_gpus": 0, "memory": memory}


def test_workers_on_gpus_share_the_cores_of_machines_that_have_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [{"CPU": 64, "GPU": 4}, {"CPU": 2}, {"CPU": 32, "GPU": 4}]
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": one} for one in found])
    task = cluster.ShardTask(OnGpu(tmp_path), ShardJob(SquaresConfig(), Inputs(), tmp_path, Execution(workers=8)), 0)
    assert cluster.resources(task) == {"num_cpus": 8, "num_gpus": 1}
    assert cluster.pinned(task).job.execution.device == "cuda"


@pytest.mark.usefixtures("machines")
class TestLostMachine:
    def test_a_machine_that_is_lost_costs_its_shards(self, machines: Any, tmp_path: Path) -> None:
        (tmp_path / "trace").mkdir()

        class Unplugging(Losing):
            def lose(self) -> None:
                machines.remove_node(machines.list_all_nodes()[-1], allow_graceful=False)

        made = TestRay().made(Store(tmp_path / "store"), Sums(tmp_path / "trace", seconds=0.2), Unplugging(2))
        assert made.artifact.metrics == {"sum": 21}
        machines.add_node(**NODE)
        machines.wait_for_nodes()
