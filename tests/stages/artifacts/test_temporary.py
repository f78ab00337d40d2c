"""Temporary files of the store follow no link that somebody laid."""

import os
import shutil
from pathlib import Path

import pytest

from stages.artifacts import durable
from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import replacing_by_name, write_atomically
from stages.artifacts.store import Store
from stages.errors import ArtifactError


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


def test_links_in_the_place_of_names_and_stamps_are_replaced(
    tmp_path: Path, store: Store, squares: Artifact
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    name = store.root / "names" / "tokens" / "nine"
    name.parent.mkdir(parents=True)
    stamps = store.stamp_file("tokens", squares.id)
    stamps.unlink()
    for link in (name, stamps):
        link.symlink_to(victim)
    store.name(squares, "nine")
    store.check_files(squares)
    assert victim.read_text() == "mine"
    assert not name.is_symlink() and not stamps.is_symlink()
    assert store.open("tokens/nine").reference == squares.reference


def test_folders_of_names_and_stamps_behind_links_are_not_written(
    tmp_path: Path, store: Store, squares: Artifact
) -> None:
    for place in (store.root / "names", store.root / ".stamps"):
        elsewhere = tmp_path / f"elsewhere-{place.name}"
        elsewhere.mkdir()
        shutil.rmtree(place, ignore_errors=True)
        place.symlink_to(elsewhere)
    with pytest.raises(ArtifactError, match="is a link"):
        store.name(squares, "nine")
    store.check_files(squares)
    assert not list(tmp_path.glob("elsewhere-*/*"))


def test_a_library_writes_under_a_name_that_cannot_be_guessed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".weights.tmp").symlink_to(victim)
    (tmp_path / ".weights.0123.tmp").write_text("left by a killed process")
    with replacing_by_name(tmp_path / "weights") as unfinished:
        unfinished.write_text("new")
    assert victim.read_text() == "mine"
    assert (tmp_path / "weights").read_text() == "new"
    assert not (tmp_path / ".weights.0123.tmp").exists()
