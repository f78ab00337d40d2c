"""Temporary files of the store follow no link that somebody laid."""

import os
from pathlib import Path

import pytest

from stages.artifacts import durable
from stages.artifacts.durable import write_atomically


def test_a_link_at_the_name_of_a_process_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".name.{os.getpid()}.tmp").symlink_to(victim)
    write_atomically(tmp_path / "name", "new")
    assert (tmp_path / "name").read_text() == "new"
    assert victim.read_text() == "mine"


def test_a_link_at_the_very_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(durable.secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".name.guessed.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "name", "new")
    assert victim.read_text() == "mine"
