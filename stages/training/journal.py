"""The course of a training run: training.jsonl and TensorBoard logs."""

import json
import os
from pathlib import Path
from typing import Any

LINES, LOGS = "training.jsonl", "logs"


class Journal:
    """Appends one line a report to `training.jsonl` and the same figures to `logs/`."""

    def __init__(self, folder: Path, size: int, step: int) -> None:
        """Open the journal of a run that stands at `step`, cut back to the `size` bytes it had then."""
        from torch.utils.tensorboard import SummaryWriter

        self._file = (folder / LINES).open("ab")
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

    def sync(self) -> int:
        """Force all lines onto the disk; returns the size in bytes."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()
        self._board.close()
