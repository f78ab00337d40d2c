"""A stage on a worker process of a Ray cluster: what the process does, and how the command hears of it."""

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from stages.artifacts.executors.failed import Failed
from stages.artifacts.executors.machines import Place, RayError, ray, require_shared
from stages.artifacts.make import Status, make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.interrupts import Terminated
from stages.reporting import Reporter

SECONDS_BETWEEN_POSTS = 1.0
SECONDS_TO_POST = 10.0
RAYS_OWN = "RAY_"


@dataclass(frozen=True)
class StageTask:
    """A stage that runs elsewhere; all of it can be pickled."""

    stage: Stage[Any]
    config: StageConfig
    references: Mapping[str, Any]
    store: Store
    execution: Execution
    reads: Sequence[Path]
    """Folders that the machine must see."""
    command: Sequence[str]
    """The typed command, which is noted of those who make an artifact."""


class Made(NamedTuple):
    """The result of a stage."""

    reference: str
    status: Status
    seconds: float


class Told(NamedTuple):
    """A call of a method of a reporter."""

    method: str
    values: tuple[Any, ...]
    figures: Mapping[str, float]


class Board:
    """An actor that keeps what stages tell until the command takes it."""

    def __init__(self) -> None:
        self._told: dict[str, list[Told]] = {}

    def post(self, name: str, told: Sequence[Told]) -> None:
        self._told.setdefault(name, []).extend(told)

    def take(self) -> dict[str, list[Told]]:
        """Hand out the messages of each stage since the last call; a stage that has begun has an empty list first."""
        told, self._told = self._told, {}
        return told


class Collected:
    """A reporter that keeps what a stage tells, of its progress the latest alone, until it is posted."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._lock = Lock()

    def info(self, message: str) -> None:
        self._tell(Told("info", (message,), {}))

    def warning(self, message: str) -> None:
        self._tell(Told("warning", (message,), {}))

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        self._tell(Told("progress", (done, total, unit), figures))

    def _tell(self, told: Told) -> None:
        with self._lock:
            if self._told and self._told[-1].method == told.method == "progress":
                self._told.pop()
            self._told.append(told)

    def take(self) -> list[Told]:
        """Hand out the messages since the last call."""
        with self._lock:
            told, self._told = self._told, []
        return told


@contextmanager
def posted(post: Callable[[Sequence[Told]], object]) -> Iterator[Reporter]:
    """Gives a reporter whose words are posted every second, and when the block ends."""
    collected, ended = Collected(), Event()

    def go_on() -> None:
        post([])
        while not ended.wait(SECONDS_BETWEEN_POSTS):
            if told := collected.take():
                post(told)
        post(collected.take())

    thread = Thread(target=go_on, name="posts", daemon=True)  # Ray lends the cores of a first thread that waits
    thread.start()
    try:
        yield collected
    finally:
        ended.set()
        thread.join()


def run_task(packed: bytes, place: Place, environment: Mapping[str, str] | None, board: Any, name: str) -> Any:
    """Make the artifact of a stage, in a process that does nothing else. Interrupted, it saves what it can.

    Args:
        packed: a pickled `StageTask`, which another version might not even be able to read.
        environment: of the command, where the process runs on its machine; libraries read it when they are loaded.
        board: of type `Board`, on the cluster.
        name: of the stage.
    Returns: `Made` or `Failed`.
    """

    def post(told: Sequence[Told]) -> None:
        with suppress(RayError):  # who is not heard goes on
            ray.get(board.post.remote(name, told), timeout=SECONDS_TO_POST)

    try:
        if environment is not None:
            _take_over(environment)
        place.enter()
        task: StageTask = pickle.loads(packed)
        sys.argv[1:] = task.command
        for folder in task.reads:
            require_shared(folder)
        with posted(post) as reporter:
            return _made(task, reporter)
    except Terminated:  # its machine is about to go: to be run elsewhere
        raise SystemExit(1) from None
    except Exception as error:
        return Failed.of(error)


def _made(task: StageTask, reporter: Reporter) -> Made:
    began = time.monotonic()
    execution = replace(task.execution, reporter=reporter)
    outcome = make(task.stage, task.config, task.references, task.store, execution)
    return Made(outcome.artifact.reference, outcome.status, time.monotonic() - began)


def own_environment() -> dict[str, str]:
    """The environment of this process, without Ray's own variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(RAYS_OWN)}


def _take_over(environment: Mapping[str, str]) -> None:
    for name in own_environment().keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
