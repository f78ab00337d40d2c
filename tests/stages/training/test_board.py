"""Figures for TensorBoard lie beside the artifacts, and training does not depend on them."""

import platform
import socket
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.training import board
from stages.training.board import Board, open_board
from tests.builders.trainings import train
from tests.stages.small_store import small_tokens

pytest.importorskip("tensorboard")


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values of a figure, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_steps_that_a_resumed_run_repeats_are_void(tmp_path: Path) -> None:
    first = Board(tmp_path, 0)
    for step in (1, 2, 3):
        first.add(step, {"loss": step / 2})
    first.close()
    resumed = Board(tmp_path, 2)
    resumed.add(3, {"loss": 8.0})
    resumed.close()
    assert scalars(tmp_path, "loss") == [(1, 0.5), (2, 1.0), (3, 8.0)]


def test_logs_lie_in_no_artifact_and_go_with_theirs(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = train(store, small_tokens(store))
    logs = store.root / "logs" / "model" / model.id
    assert len(scalars(logs, "loss")) >= 1
    assert not any("logs" in file for file in model.manifest.files)
    host = socket.gethostname().encode()
    files = [file for file in model.path.rglob("*") if file.is_file()]
    assert not any(host in file.read_bytes() for file in files)
    store.remove(model.reference)
    assert not logs.exists()


def test_without_tensorboard_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "find_spec", lambda name: None)
    assert open_board(tmp_path / "logs", 0) is None
    assert not (tmp_path / "logs").exists()


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    assert open_board(tmp_path / "logs", 0) is None


def test_the_producer_says_nothing_of_the_kernel(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    produced = small_tokens(store).manifest.producer
    assert platform.release() not in str(produced)
