"""Messages of a stage while it works; the command line decides how they look."""

import os
from collections.abc import Callable
from typing import Protocol

Progress = Callable[[int, int, str], None]
"""Hears what is done, of how much, and what of: `Reporter.progress` does."""


def unheard(done: int, total: int, unit: str) -> None:
    """Progress that nobody asks for."""


def first_process() -> bool:
    """Whether this process tells and writes; those that torchrun started beside it only work, or fail."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


class Reporter(Protocol):
    """Receives a stage's words and progress; called often, so it throttles by itself."""

    def info(self, message: str) -> None:
        """One line that a user wants to read."""

    def warning(self, message: str) -> None:
        """One line that a user ought to read."""

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        """`done` of `total` `unit`s are finished; `figures` are shown beside them (loss=…, tokens_per_second=…)."""


class Silent:
    """A reporter that says nothing, for libraries and tests."""

    def info(self, message: str) -> None: ...

    def warning(self, message: str) -> None: ...

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None: ...
