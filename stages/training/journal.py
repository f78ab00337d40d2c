"""The course of a training run: training.jsonl, and progress."""

import hashlib
import json
import math
import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stages.artifacts.checksums import file_entry
from stages.training.board import open_board
from stages.training.ranks import mean_over_ranks
from stages.training.training_data import Run

LINES = "training.jsonl"


def is_whole(folder: Path, size: int, digest: str | None) -> bool:
    """Whether the first `size` bytes of a journal have the digest in the checkpoint."""
    path = folder / LINES
    return not size or (
        path.is_file() and hashlib.blake2b(path.read_bytes()[:size]).hexdigest() == digest
    )


@dataclass
class Progress:
    """Progress of a run so far; saved with each checkpoint. Losses are means per token, in nats."""

    step: int = 0
    seconds: float = 0.0
    """Time spent in updates."""
    loss_sum: float = 0.0
    """Sum of the updates' losses since the last line of the journal, and the number of updates."""
    loss_count: int = 0
    auxiliary_sum: float | None = None
    """Part of `loss_sum` from auxiliary losses; None: there are none."""
    document_sum: int = 0
    """Documents that the same updates read, each counted once per update."""
    line_step: int = 0
    """Step of the last line of the journal, and the time spent by then."""
    line_seconds: float = 0.0
    train_loss: float | None = None
    """The loss in the last line of the journal."""
    valid_loss: float | None = None
    """The lowest validation loss, and its step."""
    valid_step: int | None = None
    valid_digest: str | None = None
    """BLAKE2b of the file of the best weights."""
    journal_bytes: int = 0
    journal_digest: str | None = None
    """BLAKE2b of the first bytes of the journal, up to its saved size."""

    def add(self, loss: float, auxiliary: float | None, documents: int) -> None:
        """Count the loss of an update, the part of it from auxiliary losses, and the number of
        documents read.
        """
        self.loss_sum += loss
        self.loss_count += 1
        self.document_sum += documents
        if auxiliary is not None:
            self.auxiliary_sum = (self.auxiliary_sum or 0.0) + auxiliary

    def start_line(self, train_loss: float) -> None:
        """Begin a new line of the journal after one with the loss `train_loss`."""
        self.train_loss = train_loss
        self.loss_sum = 0.0
        self.loss_count = 0
        self.auxiliary_sum = None
        self.document_sum = 0
        self.line_step = self.step
        self.line_seconds = self.seconds

    def note_validation(self, valid_loss: float) -> bool:
        """Note a validation; whether it is the best so far."""
        best = self.valid_loss is None or valid_loss < self.valid_loss
        if best:
            self.valid_loss = valid_loss
            self.valid_step = self.step
        return best

    @property
    def mean_loss(self) -> float:
        """Mean training loss since the last line of the journal, or in that line if it has just
        been written.
        """
        if self.loss_count:
            return self.loss_sum / self.loss_count
        return math.nan if self.train_loss is None else self.train_loss

    @property
    def steps_per_second(self) -> float:
        """Updates a second since the last line of the journal; over the whole run if that was just
        written.
        """
        since_line = self.step - self.line_step, self.seconds - self.line_seconds
        steps, seconds = since_line if self.step > self.line_step else (self.step, self.seconds)
        return steps / max(seconds, 1e-9)


class CopiedNumber:
    """A number on the device that is copied while the host continues."""

    def __init__(self, number: Tensor) -> None:
        """`number`: a scalar, the latest result queued on its device, so that `value` waits for no
        later work.
        """
        self._copy = number.detach().to("cpu", non_blocking=True)
        # A separate event: waiting for the whole device would include updates queued since.
        self._copied = torch.cuda.Event() if number.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def value(self) -> float:
        """The number; waits until it is copied."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._copy)


class UpdateFigures(NamedTuple):
    """Figures that an update reports."""

    step: int
    """Its number, from 1."""
    loss: CopiedNumber
    auxiliary: CopiedNumber | None
    """Part of the loss from auxiliary losses; None: there are none."""
    documents: int
    """Number of documents read, in whole or in part."""


class Journal:
    """Appends a line per report to `training.jsonl`, and the same figures to TensorBoard's logs."""

    def __init__(self, folder: Path, size: int, step: int, logs: Path | None = None) -> None:
        """Open the journal of a run at `step`, truncated to the `size` bytes that it had then.

        `logs`: the folder for TensorBoard; None: there is none.
        """
        self._path = folder / LINES
        self._file = self._path.open("ab")
        # Lines after the checkpoint belong to updates that will be repeated.
        self._file.truncate(size)
        self._board = open_board(logs, step)

    def write(self, step: int, **figures: float | int | None) -> None:
        """Add the figures of a step; None: not measured at this step."""
        line: dict[str, Any] = {"step": step, **figures}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        if self._board is not None:
            measured = {name: value for name, value in figures.items() if value is not None}
            # The line above has the figures: a disk that is full ends training there, with advice.
            with suppress(OSError):
                self._board.add(step, measured)

    def sync(self) -> tuple[int, str]:
        """Force all lines onto the disk; returns their size in bytes, and their digest."""
        os.fsync(self._file.fileno())
        entry = file_entry(self._path)
        return entry["bytes"], entry["blake2b"]

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


class Course:
    """Reports the progress of a run."""

    def __init__(self, run: Run, progress: Progress, update_tokens: int, stack: ExitStack) -> None:
        """Open the journal, which `stack` closes; only the first process has one."""
        self._run = run
        self._progress = progress
        self._update_tokens = update_tokens
        self._began: tuple[int, float] | None = None
        """Step and time of the first report, from which the shown speed is measured."""
        self.journal: Journal | None = None
        if run.fabric.is_global_zero:
            self.journal = Journal(run.folder, progress.journal_bytes, progress.step, run.logs)
            stack.callback(self.journal.close)

    def write_line(self, valid: float | None, learning_rate: float) -> None:
        """Write a line of the journal: means since the previous line."""
        progress = self._progress
        fabric = self._run.fabric
        loss = mean_over_ranks(fabric, progress.mean_loss)
        figures = {}
        if progress.auxiliary_sum is not None:
            auxiliary = progress.auxiliary_sum / max(1, progress.loss_count)
            figures["auxiliary_loss"] = mean_over_ranks(fabric, auxiliary)
        documents = (
            round(progress.document_sum / progress.loss_count, 1) if progress.loss_count else None
        )
        if self.journal:
            self.journal.write(
                progress.step,
                tokens=progress.step * self._update_tokens,
                loss=loss,
                **figures,
                documents=documents,
                valid_loss=valid,
                learning_rate=learning_rate,
                tokens_per_second=round(progress.steps_per_second * self._update_tokens, 1),
            )
        progress.start_line(loss)

    def show(self) -> None:
        """Show the progress after a step.

        The speed includes the time between updates, such as validations, as does the remaining time
        shown next to it.
        """
        step = self._progress.step
        loss = self._progress.mean_loss
        now = time.monotonic()
        config = self._run.config
        figures = {"loss": loss}
        self._began = self._began or (step, now)
        first, began = self._began
        if now > began:
            figures["tokens_per_second"] = (step - first) * self._update_tokens / (now - began)
        if (
            config.method_settings.learns == "text"
        ):  # perplexity makes no sense for a loss over labels
            figures["perplexity"] = exp(loss)
        self._run.reporter.progress(step, config.steps, "steps", **figures)


def exp(loss: float) -> float:
    """Perplexity of a loss, finite for any loss."""
    return math.exp(min(loss, 700.0))
