"""Figures of a training for TensorBoard, where it is installed: `pip install 'memlm[tensorboard]'`.

They lie in the store's folder `logs`, beside the artifacts: what is published holds none of them.
"""

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VERSION = "brain.Event:2"
"""The version of the format, which the first record of a file must have."""


class Board:
    """Appends the figures of steps to a file of events.

    TensorBoard's own writer has a thread, whose errors nobody can catch, and puts the host's name
    into the name of the file. This one writes at once, and ends quietly if the disk fails: the
    figures are in `training.jsonl` as well.
    """

    def __init__(self, folder: Path, step: int) -> None:
        """Begin a file in `folder`; events after `step`, which will be repeated, are void."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard recognizes files by "tfevents"; a run that is resumed adds a file.
        self._file = (folder / f"events.out.tfevents.{time.time_ns()}").open("xb")
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version=VERSION))
        if step:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=step + 1, session_log=start))

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures of a step."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        self._file.close()


def open_board(folder: Path | None, step: int) -> Board | None:
    """The board of a run; None if no folder is given, or TensorBoard is not installed."""
    if folder is None or find_spec("tensorboard") is None:
        return None
    try:
        return Board(folder, step)
    except OSError:
        return None
