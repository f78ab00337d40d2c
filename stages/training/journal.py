"""The course of a training run: training.jsonl, TensorBoard logs, and progress."""

import hashlib
import json
import math
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stages.artifacts.checksums import file_entry
from stages.training.progress import Pace, Progress
from stages.training.ranks import mean_over_ranks
from stages.training.training_data import Run

LINES, LOGS = "training.jsonl", "logs"


def is_whole(folder: Path, size: int, digest: str | None) -> bool:
    """Whether the first `size` bytes of a journal have the digest in the checkpoint; None: it has no digest."""
    path = folder / LINES
    if digest is None or not size:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(size)).hexdigest() == digest


class Journal:
    """Appends a line per report to `training.jsonl`, and the same figures to `logs/`."""

    def __init__(self, folder: Path, size: int, step: int) -> None:
        """Open the journal of a run at `step`, truncated to the `size` bytes that it had then."""
        from torch.utils.tensorboard import SummaryWriter

        self._path = folder / LINES
        self._file = self._path.open("ab")
        # Lines after the checkpoint belong to updates that will be repeated.
        self._file.truncate(size)
        self._board = SummaryWriter(str(folder / LOGS), purge_step=step + 1 if step else None)

    def write(self, step: int, **figures: float | int | None) -> None:
        """Add the figures of a step; None: not measured at this step."""
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


class Course:
    """Reports the progress of a run."""

    def __init__(self, run: Run, progress: Progress, update_tokens: int, stack: ExitStack) -> None:
        """Open the journal, which `stack` closes; only the first process has one."""
        self._run, self._progress, self._update_tokens = run, progress, update_tokens
        self._pace = Pace(update_tokens)
        self.journal: Journal | None = None
        if run.fabric.is_global_zero:
            self.journal = Journal(run.folder, progress.journal_bytes, progress.step)
            stack.callback(self.journal.close)

    def write_line(self, valid: float | None, learning_rate: float) -> None:
        """Write a line of the journal: means since the previous line."""
        progress, fabric = self._progress, self._run.fabric
        loss, auxiliary = mean_over_ranks(fabric, progress.mean_loss), progress.mean_auxiliary
        if auxiliary is not None:
            auxiliary = mean_over_ranks(fabric, auxiliary)
        if self.journal:
            self.journal.write(
                progress.step,
                tokens=progress.step * self._update_tokens,
                loss=loss,
                **({} if auxiliary is None else {"auxiliary_loss": auxiliary}),
                documents=progress.mean_documents,
                valid_loss=valid,
                learning_rate=learning_rate,
                tokens_per_second=round(progress.steps_per_second * self._update_tokens, 1),
            )
        progress.start_line(loss)

    def show(self) -> None:
        """Show the progress after a step."""
        step, loss = self._progress.step, self._progress.mean_loss
        speed = self._pace.tokens_per_second(step)
        config = self._run.config
        figures = {"loss": loss} | ({} if speed is None else {"tokens_per_second": speed})
        if config.method_settings.learns == "text":  # perplexity makes no sense for a loss over labels
            figures["perplexity"] = exp(loss)
        self._run.reporter.progress(step, config.steps, "steps", **figures)


def exp(loss: float) -> float:
    """Perplexity of a loss, finite for any loss."""
    return math.exp(min(loss, 700.0))
