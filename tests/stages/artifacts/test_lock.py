"""Files of locks: none stays, and none is shared by two holders."""

import multiprocessing
from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.garbage import find_garbage, remove_garbage
from stages.artifacts.lock import hold_lock, is_held
from stages.artifacts.store import Store
from stages.errors import BusyError
from stages.reporting import Silent


def test_no_lock_stays_of_an_artifact_that_is_made(store: Store, squares: Artifact) -> None:
    assert not list(store.root.rglob("*.lock"))


def test_a_held_lock_is_seen_and_refused(tmp_path: Path) -> None:
    file = tmp_path / ".0123456789ab.lock"
    with hold_lock(file, "model/0123456789ab", wait=True, reporter=Silent()):
        assert is_held(file)
        with (
            pytest.raises(BusyError),
            hold_lock(file, "model/0123456789ab", wait=False, reporter=Silent()),
        ):
            raise AssertionError("two hold it")
    assert not is_held(file) and not file.exists()


def test_a_link_named_like_a_lock_stops_nothing(store: Store, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    draft = store.draft_folder("model", "0123456789ab")
    draft.mkdir(parents=True)
    store.lock_file("model", "0123456789ab").symlink_to(victim)
    remove_garbage(store, find_garbage(store))
    assert not draft.exists()
    assert victim.read_text() == "mine"


def _count(file: Path, total: Path, times: int) -> None:
    for _ in range(times):
        with hold_lock(file, "model/0123456789ab", wait=True, reporter=Silent()):
            total.write_text(str(int(total.read_text()) + 1))


def test_processes_that_take_turns_never_hold_it_together(tmp_path: Path) -> None:
    file = tmp_path / ".0123456789ab.lock"
    total = tmp_path / "total"
    total.write_text("0")
    start = multiprocessing.get_context("fork").Process
    counters = [start(target=_count, args=(file, total, 30)) for _ in range(4)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join(120)
    assert total.read_text() == "120"
    assert not file.exists()
