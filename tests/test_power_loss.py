"""Power losses in stages, removals and training; many more: `python -m tests.endurance.power_loss`."""

from pathlib import Path

import pytest

from stages.artifacts.garbage import find_garbage, remove_garbage
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from tests.endurance.campaign.world import STAGES, write_texts
from tests.endurance.power_loss.check import state
from tests.endurance.power_loss.commands import command
from tests.endurance.power_loss.record import Sync, recorded
from tests.endurance.power_loss.replay import Replay
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig


def squares(root: Path) -> None:
    store = Store(root / "store")
    store.name(make(Squares(), SquaresConfig(), {}, store, Execution()).artifact, "nine")


def cubes(root: Path) -> None:
    make(Cubes(), SquaresConfig(), {"source": "tokens/nine"}, Store(root / "store"), Execution())


def interrupted(root: Path) -> None:
    """Leave a draft half way, and one that lacks its last name alone."""
    store = Store(root / "store")
    with pytest.raises(RuntimeError):
        make(Squares(2, RuntimeError()), SquaresConfig(length=12), {}, store, Execution())
    last = make(Squares(), SquaresConfig(length=5), {}, store, Execution()).artifact
    last.path.rename(store.draft_folder(last.kind, last.id))


def remove_all(root: Path) -> None:
    store = Store(root / "store")
    for artifact in reversed(store.artifacts()):
        store.remove(artifact.reference)


def collect(root: Path) -> None:
    store = Store(root / "store")
    remove_garbage(store, find_garbage(store, interrupted=True))
    assert not find_garbage(store, interrupted=True)


def goes_on(root: Path) -> None:
    """Take up the drafts of `interrupted`."""
    for length in (5, 12):
        make(Squares(), SquaresConfig(length=length), {}, Store(root / "store"), Execution())


def failures(replay: Replay, most: int) -> list[str]:
    return [failure for case in replay.sample(most) for failure in replay.failures(case)]


def test_making_and_naming(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert failures(Replay([squares, cubes], tmp_path / "empty", tmp_path), 40) == []


def test_a_missing_sync_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.artifacts.output.fsync_folders", lambda *folders: None)
    (tmp_path / "empty").mkdir()
    replay = Replay([squares], tmp_path / "empty", tmp_path)
    assert any("has lost" in failure for failure in failures(replay, 40))


def syncs(folder: Path, length: int) -> int:
    """How often something is synced where squares of so many numbers are made, three a shard."""
    folder.mkdir()
    with recorded(folder) as record:
        make(Squares(), SquaresConfig(length=length), {}, Store(folder / "store"), Execution())
    return sum(isinstance(event, Sync) for event in record.events[record.began :])


def test_a_shard_costs_the_same_syncs_however_many_there_are(tmp_path: Path) -> None:
    """A file, the folders above it in the draft, and the log."""
    few, more, most = (syncs(tmp_path / str(length), length) for length in (3, 6, 30))
    assert most - few == 9 * (more - few)
    assert more - few <= 7


def test_what_is_cached_costs_no_sync(tmp_path: Path) -> None:
    assert syncs(tmp_path / "store", 6) > 0
    with recorded(tmp_path / "store") as record:
        outcome = make(
            Squares(), SquaresConfig(length=6), {}, Store(tmp_path / "store" / "store"), Execution()
        )
    assert outcome.status == "cached"
    assert not any(isinstance(event, Sync) for event in record.events[record.began :])


def test_removing_and_collecting(tmp_path: Path) -> None:
    for step in (squares, cubes, interrupted):
        step(tmp_path / "prepared")
    assert failures(Replay([remove_all, collect], tmp_path / "prepared", tmp_path), 60) == []


def test_a_collected_draft_is_made_again(tmp_path: Path) -> None:
    """Half of a draft's files deleted is no draft that lacks its name alone."""
    interrupted(tmp_path / "prepared")
    assert failures(Replay([collect], tmp_path / "prepared", tmp_path, then=[goes_on]), 30) == []


def test_training(tmp_path: Path) -> None:
    write_texts(tmp_path / "prepared")
    command(STAGES["tokens"])(tmp_path / "prepared")
    (tokens,) = state(tmp_path / "prepared")
    train = [argument.replace("{tokens}", tokens) for argument in STAGES["model"]]
    assert (
        failures(Replay([command([*train, "--device", "cpu"])], tmp_path / "prepared", tmp_path), 8)
        == []
    )
