"""A checkpoint that cannot be read is said to be so."""

import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import nn

from stages.artifacts.durable import disk_failure
from stages.errors import ArtifactError
from stages.methods.method import Carried
from stages.training.checkpoint import CHECKPOINT, load_checkpoint, save_checkpoint
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
