"""Saves a run when it is time, and restores it when it is resumed."""

import time
from dataclasses import asdict
from typing import Any

from torch import Tensor

from stages.artifacts.durable import fsync
from stages.methods.method import Remembers
from stages.training.best import best_file, drop_others
from stages.training.checkpoint import (
    CHECKPOINT,
    RankState,
    damaged_checkpoint,
    load_checkpoint,
    random_state,
    save_checkpoint,
)
from stages.training.journal import LINES, Journal, is_whole
from stages.training.progress import Progress
from stages.training.ranks import gather_over_ranks
from stages.training.run import Run
from stages.training.update import Updates


class Saver:
    """Saves a run in its folder, and restores it."""

    def __init__(self, run: Run, updates: Updates) -> None:
        self._run, self._updates = run, updates
        self._path = run.folder / CHECKPOINT
        self._saved_at = time.monotonic()

    def is_due(self, progress: Progress) -> bool:
        """Whether to save after a step: at the end, when it is time, and with weights that do best so far."""
        return (
            progress.step == self._run.config.steps
            or time.monotonic() - self._saved_at >= self._run.checkpoint_seconds
            or progress.valid_step == progress.step
        )

    def save(self, progress: Progress, journal: Journal | None) -> None:
        """Write a checkpoint; every process must ask, the first one writes."""
        run, method = self._run, self._run.method
        ranks = gather_over_ranks(run.fabric, RankState(random_state(), self._updates.carried.each(Tensor.cpu)))
        if journal is not None:
            progress.journal_bytes, progress.journal_digest = journal.sync()
            fsync(run.folder)  # the journal and the best weights have their names before the checkpoint counts on them
            kept = method.state_dict() if isinstance(method, Remembers) else {}
            save_checkpoint(self._path, run.model, self._updates.bare_optimizer, ranks, asdict(progress), kept)
            drop_others(run.folder, progress)
        self._saved_at = time.monotonic()

    def restore(self) -> Progress:
        """Put back what the folder holds of a run; returns where it goes on, the start if it holds nothing.

        Raises: ArtifactError if the checkpoint, or what it speaks of, is not as it was saved.
        """
        if not self._path.is_file():
            return Progress()
        run, fabric = self._run, self._run.fabric
        saved = load_checkpoint(
            self._path, run.model, self._updates.bare_optimizer, fabric.global_rank, fabric.world_size
        )
        progress = self._progress(saved.progress)
        self._updates.carried = saved.carried.each(lambda tensor: tensor.to(fabric.device))
        if isinstance(run.method, Remembers):
            run.method.load_state_dict(saved.method)
        run.reporter.info(f"resumed: {progress.step} of {run.config.steps} steps")
        return progress

    def _progress(self, saved: dict[str, Any]) -> Progress:
        try:
            progress = Progress(**saved)
        except TypeError as error:
            raise damaged_checkpoint(self._path, str(error)) from error
        if self._run.fabric.is_global_zero:
            best_file(self._run.folder, progress)
            if not is_whole(self._run.folder, progress.journal_bytes, progress.journal_digest):
                raise damaged_checkpoint(self._path, f"{LINES} is not as it was saved")
        return progress
