"""Messages of a stage during its work; the command line decides on their form."""

import os
from collections.abc import Callable
from typing import Protocol

Progress = Callable[[int, int, str], None]
"""Receives (done, total, unit), like `Reporter.progress`."""


def unheard(done: int, total: int, unit: str) -> None:
    """Ignore progress."""


def first_process() -> bool:
    """Whether this process reports and writes; other processes of torchrun only compute."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


class Reporter(Protocol):
    """Receives a stage's messages and progress. It is called often, so implementations throttle
    output.
    """

    def info(self, message: str) -> None:
        """Report a line of information."""

    def warning(self, message: str) -> None:
        """Report a line that the user should not miss."""

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        """`done` of `total` `unit`s are finished; `figures` are shown next to them (loss=…,
        tokens_per_second=…).
        """


class Silent:
    """A reporter that says nothing, for libraries and tests."""

    def info(self, message: str) -> None: ...

    def warning(self, message: str) -> None: ...

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None: ...
