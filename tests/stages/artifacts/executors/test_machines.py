"""How a command joins a cluster, and what its workers take there."""

import socket
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.declaration import StageEntry
from stages.artifacts.kinds import STAGES
from stages.artifacts.needs import Needs
from stages.artifacts.stage import Execution, Inputs
from stages.errors import ResourceError
from tests.stages.artifacts.toy import SquaresConfig, Sums

ray = pytest.importorskip("ray")

from stages.artifacts.executors import cluster  # noqa: E402


def test_without_a_cluster_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**settings: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", nowhere)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ResourceError, match="--head"):
        cluster.joined().__enter__()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(ResourceError, match=r"127\.0\.0\.1"):
        cluster.joined().__enter__()


def needs_of_sums(config: SquaresConfig, inputs: Inputs) -> Needs:
    return Needs(memory=4, device_memory=6)


def taken(stage: Sums, workers: int) -> dict[str, Any]:
    return cluster.resources(stage, SquaresConfig(), Inputs(), Execution(workers=workers))


class ModelConfig(SquaresConfig):
    runs_models = True


class OnGpu(Sums):
    Config = ModelConfig


@pytest.mark.parametrize(
    ("cores", "workers", "each"),
    [([16, 16], 4, 8), ([16, 16], 3, 8), ([4, 32], 8, 1), ([2], 1, 2), ([1, 1], 9, 1)],
)
def test_workers_fit_side_by_side_on_the_machines_there_are(
    cores: list[int], workers: int, each: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": number}} for number in cores]
    nodes += [
        {"Alive": False, "Resources": {"CPU": 1}},
        {"Alive": True, "Resources": {"memory": 5}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert taken(Sums(tmp_path), workers) == {"num_cpus": each, "num_gpus": 0}
    assert cluster.pinned(Sums(tmp_path), Execution()).device == "cpu"


@pytest.mark.parametrize(
    ("room", "workers", "cores", "memory"),
    [([40, 40], 4, 8, 10), ([15, 40], 4, 16, 10), ([40, 5], 2, 16, 10), ([6], 2, 16, 6)],
)
def test_workers_take_the_memory_that_their_stage_says_and_share_cores_with_as_many_as_that_leaves_room_for(
    room: list[int],
    workers: int,
    cores: int,
    memory: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    found = [{"Alive": True, "Resources": {"CPU": 16, "memory": float(size)}} for size in room]
    monkeypatch.setattr(ray, "nodes", lambda: found)
    row = StageEntry(f"{Sums.__module__}:Sums", "tokens", needs=f"{__name__}:needs_of_sums")
    monkeypatch.setitem(STAGES.targets, Sums.name, row)
    assert taken(Sums(tmp_path), workers) == {"num_cpus": cores, "num_gpus": 0, "memory": memory}


def test_workers_on_gpus_share_the_cores_of_machines_that_have_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stages.models.devices.device_name", lambda name: "some GPU")
    found = [{"CPU": 64, "GPU": 4}, {"CPU": 2}, {"CPU": 32, "GPU": 4}]
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": one} for one in found])
    assert taken(OnGpu(tmp_path), 8) == {"num_cpus": 8, "num_gpus": 1}
    assert cluster.pinned(OnGpu(tmp_path), Execution()).device == "cuda"


def test_losses_are_no_accident_where_they_are_many_at_the_same_work() -> None:
    losses, error = cluster.Losses(), RuntimeError("died\n  of memory\n")
    for number in range(cluster.MOST_LOSSES):
        losses.note("add-004", error)
        losses.note(f"add-10{number}", error)
    with pytest.raises(ResourceError, match=r"4 processes .* \(add-004\).*of memory"):
        losses.note("add-004", error)
