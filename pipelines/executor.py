"""Where stages of a recipe run, and how many at a time: here one after the other; side by side in `cluster.py`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import Status, make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.reporting import Reporter

Reporters = Callable[[str], AbstractContextManager[Reporter]]


@dataclass(frozen=True)
class StageRun:
    """A stage of a recipe that can run: all that it reads is made."""

    name: str
    stage: Stage[Any]
    config: StageConfig
    references: Mapping[str, Any]
    """References that it reads: artifacts that are there, and files."""
    command: tuple[str, ...]
    """The words of the command that does the same."""


@dataclass(frozen=True)
class Result:
    """A stage of a recipe, done."""

    name: str
    artifact: Artifact
    status: Status
    seconds: float
    """Seconds of this run, not of the run that made the artifact."""

    @property
    def reference(self) -> str:
        return self.artifact.reference


class StageExecutor(ABC):
    """Decides where stages run, and how many at a time.

    Args:
        store: where artifacts are found and made.
        execution: how to work; its reporter is replaced for each stage.
        reporters: makes the reporter of the stage with a given name.
    """

    def __init__(self, store: Store, execution: Execution, reporters: Reporters) -> None:
        self.store = store
        self.execution = execution
        self.reporters = reporters

    @abstractmethod
    def begin(self, ready: Sequence[StageRun]) -> Sequence[StageRun]:
        """Begin as many stages, the first ones, as there is room for; returns these. Raises: what a stage raises."""

    @abstractmethod
    def finished(self) -> Result:
        """Wait for a stage that was begun. Raises: what a stage raises, and what a signal asks for."""

    @abstractmethod
    def close(self) -> None:
        """End what was begun, finished or not; what is done of it is kept."""

    def run_here(self, run: StageRun) -> Result:
        """Make the artifact of a stage in this process, or find it. Raises: whatever the stage raises."""
        began = monotonic()
        with self.reporters(run.name) as reporter:
            execution = replace(self.execution, reporter=reporter, command=run.command)
            outcome = make(run.stage, run.config, run.references, self.store, execution)
        return Result(run.name, outcome.artifact, outcome.status, monotonic() - began)


class LocalExecutor(StageExecutor):
    """Runs a stage in this process, when it is waited for."""

    def begin(self, ready: Sequence[StageRun]) -> Sequence[StageRun]:
        self._run = ready[0]
        return ready[:1]

    def finished(self) -> Result:
        return self.run_here(self._run)

    def close(self) -> None:
        """Nothing is under way that nobody waits for."""
