"""Runs that are killed."""

from typing import Any

from stages.training.loop import Trainer
from tests.cli.conftest import Memlm, logs, memlm  # noqa: F401


def killed(trainer: Trainer, last: int, update: Any) -> None:
    if trainer.progress.step == last:
        raise KeyboardInterrupt
    update(trainer)
