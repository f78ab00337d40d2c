"""The course of a training run: training.jsonl and TensorBoard logs."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from stages.artifacts.checksums import file_entry

LINES, LOGS = "training.jsonl", "logs"


def is_whole(folder: Path, size: int, digest: str | None) -> bool:
    """Whether the first bytes of a journal are those that a checkpoint speaks of; None: it does not tell."""
    path = folder / LINES
    if digest is None or not size:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(size)).hexdigest() == digest


class Journal:
    """Appends one line a report to `training.jsonl` and the same figures to `logs/`."""

    def __init__(self, folder: Path, size: int, step: int) -> None:
        """Open the journal of a run that stands at `step`, cut back to the `size` bytes it had then."""
        from torch.utils.tensorboard import SummaryWriter

        self._path = folder / LINES
        self._file = self._path.open("ab")
        self._file.truncate(size)
        self._board = SummaryWriter(str(folder / LOGS), purge_step=step + 1 if step else None)

    def write(self, step: int, **figures: float | int | None) -> None:
        """Add what is known after a step; None: not measured at this one."""
        line: dict[str, Any] = {"step": step, **figures}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        for name, value in figures.items():
            if value is not None:
                self._board.add_scalar(name, value, step)

    def sync(self) -> tuple[int, str]:
        """Force all lines onto the disk; returns their size in bytes, and their digest."""
        os.fsync(self._file.fileno())
        entry = file_entry(self._path)
        return entry["bytes"], entry["blake2b"]

    def close(self) -> None:
        self._file.close()
        self._board.close()
