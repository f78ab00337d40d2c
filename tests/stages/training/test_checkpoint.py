"""A checkpoint that cannot be read is said to be so."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from stages.artifacts.durable import disk_failure
from stages.errors import ArtifactError
from stages.methods.method import Carried
from stages.training.checkpoint import CHECKPOINT, Saver, load_checkpoint, save_checkpoint
from stages.training.journal import Progress
from tests.cli.conftest import largest_file


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, kept: int) -> None:
    model, path = nn.Linear(3, 2), tmp_path / "checkpoint.safetensors"
    optimizer = torch.optim.Adam(model.parameters())
    save_checkpoint(path, model, optimizer, [], {"step": 3}, {})
    assert load_checkpoint(path, model, optimizer) == ({"step": 3}, Carried(), {})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ArtifactError, match=r"checkpoint\.safetensors"):
        load_checkpoint(path, model, optimizer)


def test_a_changed_bit_anywhere_in_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    model, path = nn.Linear(3, 2), tmp_path / "checkpoint.safetensors"
    optimizer = torch.optim.Adam(model.parameters())
    save_checkpoint(path, model, optimizer, [], {"step": 3}, {})
    whole = path.read_bytes()
    for at in (len(whole) - 1, len(whole) - 9, whole.index(b"step") + 8):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ArtifactError):
            load_checkpoint(path, model, optimizer)


def test_a_checkpoint_takes_no_memory_beside_the_state_that_it_holds(tmp_path: Path) -> None:
    model = nn.Linear(1000, 1000)
    optimizer = torch.optim.Adam(model.parameters())
    tracemalloc.start()
    try:
        save_checkpoint(tmp_path / CHECKPOINT, model, optimizer, [], {"step": 3}, {})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000 < (tmp_path / CHECKPOINT).stat().st_size


def test_a_checkpoint_that_the_disk_refuses_leaves_the_one_before(tmp_path: Path) -> None:
    model = nn.Linear(100, 100)
    optimizer = torch.optim.Adam(model.parameters())
    save_checkpoint(tmp_path / CHECKPOINT, model, optimizer, [], {"step": 3}, {})
    with largest_file(1000), pytest.raises(Exception) as refused:
        save_checkpoint(tmp_path / CHECKPOINT, model, optimizer, [], {"step": 4}, {})
    assert disk_failure(refused.value, tmp_path) is not None
    assert load_checkpoint(tmp_path / CHECKPOINT, model, optimizer).progress == {"step": 3}
    assert [file.name for file in tmp_path.iterdir()] == [CHECKPOINT]


class Later:
    """A method that keeps more than it did in an earlier version."""

    def state_dict(self) -> dict[str, Any]:
        return {"batches": 1, "ended": 0}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert (state["batches"], state["ended"]) == (1, 0)


@pytest.mark.parametrize(
    ("progress", "kept"),
    [({}, {"batches": 1}), ({"later": 1}, Later().state_dict())],
    ids=["method", "progress"],
)
def test_a_checkpoint_of_another_version_is_named(
    tmp_path: Path, progress: dict[str, Any], kept: dict[str, Any]
) -> None:
    model, path = nn.Linear(3, 2), tmp_path / CHECKPOINT
    optimizer = torch.optim.Adam(model.parameters())
    fabric = SimpleNamespace(global_rank=0, world_size=1, is_global_zero=False, device="cpu")
    reporter, config = SimpleNamespace(info=lambda words: None), SimpleNamespace(steps=9)
    run: Any = SimpleNamespace(
        folder=tmp_path,
        model=model,
        method=Later(),
        fabric=fabric,
        reporter=reporter,
        config=config,
    )
    saved = asdict(Progress(step=3))
    save_checkpoint(path, model, optimizer, [], saved, Later().state_dict())
    assert Saver(run, optimizer).restore()[0].step == 3
    save_checkpoint(path, model, optimizer, [], saved | progress, kept)
    with pytest.raises(
        ArtifactError, match=r"checkpoint\.safetensors is damaged \(it was saved by another version"
    ):
        Saver(run, optimizer).restore()
