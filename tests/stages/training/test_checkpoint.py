"""A checkpoint that cannot be read is said to be so."""

from pathlib import Path

import pytest
import torch
from torch import nn

from stages.errors import ArtifactError
from stages.methods.method import Carried
from stages.training.checkpoint import load_checkpoint, save_checkpoint


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
