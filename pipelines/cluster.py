"""Stages run as tasks of a Ray cluster, side by side; this process begins them and hears how they end.

A stage whose shards workers compute, or that reads files of the user, is looked after on the machine of the command, by
a process that takes no core of the cluster: it waits for workers. Any other, which is training, takes what a worker
takes, wherever there is room. Locks, drafts and what is resumed are those of every process that makes an artifact.
"""

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.executor import Reporters, Result, StageExecutor, StageRun
from stages.artifacts.artifact import Artifact
from stages.artifacts.executors.executor import Failed
from stages.artifacts.executors.machines import (
    NO_ROOM,
    SECONDS_OF_PATIENCE,
    Losses,
    Place,
    RayError,
    answered,
    joined,
    last_line,
    pinned,
    ray,
    require_shared,
    resources,
)
from stages.artifacts.make import ResolvedWork, Status, make, plan
from stages.artifacts.stage import Execution, ShardedStage
from stages.artifacts.store import Store
from stages.errors import ResourceError
from stages.interrupts import Terminated, deferred_signals
from stages.reporting import Reporter, Silent

SECONDS_TO_SAVE = 60
"""Time that interrupted stages have to keep what is done."""
SECONDS_TO_SEE = 60
"""Time until a file system shows what another machine published."""
SECONDS_BETWEEN_STEPS = 1.0
"""Time between two messages about the progress of a stage."""
SECONDS_TO_DELIVER = 10.0
"""Time that the last message of a stage may take."""
Message = tuple[str, str, tuple[Any, ...], Mapping[str, float]]
"""A call of a method of a reporter: the name of the stage, the method, values, figures."""


@dataclass(eq=False)
class RunningStage:
    """A stage that was begun, until it ends."""

    run: StageRun
    reference: str
    """Reference of its artifact."""
    options: dict[str, Any]
    """Options of its Ray task: resources and place."""
    arguments: tuple[Any, ...]
    """Arguments of the task, without the messages and the name."""
    reporter: Reporter
    reporting: ExitStack
    """Ends the reporter."""
    answer: Any = None
    since: float = 0.0
    heard: bool = False
    """Whether a message of it has come; until then it waits for room."""


class ClusterExecutor(StageExecutor):
    """As many stages side by side as there are workers."""

    def __init__(self, store: Store, execution: Execution, reporters: Reporters) -> None:
        super().__init__(store, execution, reporters)
        self._planned: dict[str, ResolvedWork[Any]] = {}
        self._running: dict[str, RunningStage] = {}
        self._ended: deque[Result] = deque()
        self._losses = Losses()
        self._cluster = ExitStack()
        self._task: Any = None
        self._messages: Any = None
        self._here: dict[str, Any] = {}

    # Beginning

    def begin(self, ready: Sequence[StageRun]) -> Sequence[StageRun]:
        """Begin the stages that are ready; of two that make the same artifact the second waits for the first."""
        begun, missing = [], []
        for run in ready:
            work = self._work(run)
            # Found at once: no process of the cluster is begun for what is there.
            if self.store.has(work.kind, work.id):
                self._ended.append(self.run_here(run))
                begun.append(run)
            else:
                missing.append(run)
        alone = sum(map(_computes_alone, [*missing, *(other.run for other in self._running.values())]))
        for run in missing:
            makers = {other.reference for other in self._running.values()}
            if len(makers) < self.execution.workers and self._work(run).reference not in makers:
                self._begin(run, min(self.execution.workers, alone))
                begun.append(run)
        return begun

    def _work(self, run: StageRun) -> ResolvedWork[Any]:
        if run.name not in self._planned:
            self._planned[run.name] = plan(run.stage, run.config, run.references, self.store, self.execution)
        return self._planned[run.name]

    def _begin(self, run: StageRun, alone: int) -> None:
        """Begin a stage; `alone`: how many share the cluster, it among them, that compute in one process each."""
        self._join()
        work = self._planned[run.name]
        environment = None
        if _computes_alone(run) and not work.inputs.files:
            needs = resources(run.stage, work.config, work.inputs, replace(self.execution, workers=alone))
            options = {**needs, "scheduling_strategy": "SPREAD"}
        else:
            options, environment = self._here, own_environment()
        execution = replace(pinned(run.stage, self.execution), reporter=Silent(), command=run.command)
        reads = [artifact.path for artifact in work.inputs.artifacts.values()]
        task = pickle.dumps((run, self.store, execution, reads, sys.argv[1:]))
        reporting = ExitStack()
        reporter = reporting.enter_context(self.reporters(run.name))
        arguments = (task, Place.of_this_process(), environment)
        self._running[run.name] = RunningStage(run, work.reference, options, arguments, reporter, reporting)
        self._start(self._running[run.name])

    def _join(self) -> None:
        if self._task is None:
            from ray.util.queue import Queue

            self._cluster.enter_context(joined())
            # a process for each stage, and this one decides what is done where it is lost
            self._task = ray.remote(max_calls=1, max_retries=0)(run_task)
            node = ray.get_runtime_context().get_node_id()
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            self._here = {"num_cpus": 0, "scheduling_strategy": here}
            self._messages = Queue(actor_options={"max_restarts": -1, **self._here})

    def _start(self, stage: RunningStage) -> None:
        task = self._task.options(**stage.options)
        stage.answer = task.remote(*stage.arguments, self._messages, stage.run.name)
        stage.since, stage.heard = time.monotonic(), False

    # Waiting

    def finished(self) -> Result:
        while not self._ended:
            by_answer = {stage.answer: stage for stage in self._running.values()}
            for stage in answered(by_answer, self._listen):
                self._end(stage)
        return self._ended.popleft()

    def _listen(self) -> None:
        """Report what stages have sent since the last time."""
        for name, method, values, figures in self._received():
            if name in self._running:
                self._running[name].heard = True
                if method:
                    getattr(self._running[name].reporter, method)(*values, **figures)
        for stage in self._running.values():
            if not stage.heard and time.monotonic() > stage.since + SECONDS_OF_PATIENCE:
                stage.since = float("inf")
                stage.reporter.info(NO_ROOM)

    def _received(self) -> list[Message]:
        try:
            messages: list[Message] = self._messages.get_nowait_batch(self._messages.qsize())
        except RayError:  # the actor that holds them is started again
            return []
        return messages

    def _end(self, stage: RunningStage) -> None:
        """Take note of what a stage came to. Raises: what it raised; ResourceError if it is lost too often."""
        answer: tuple[str, Status, float] | Failed | None
        try:
            answer = ray.get(stage.answer)
        except RayError as error:
            answer = self._start_again(stage, error)
        if answer is None:
            return
        if isinstance(answer, Failed):
            stage.reporter.info("failed")
        self._drop(stage)
        if isinstance(answer, Failed):
            raise answer.error()
        reference, status, seconds = answer
        self._ended.append(Result(stage.run.name, self._artifact(reference), status, seconds))

    def _start_again(self, stage: RunningStage, error: RayError) -> Failed | None:
        """Start a stage whose process was lost; what is wrong, where that is of no use."""
        try:
            if isinstance(error, ray.exceptions.RayTaskError):
                raise ResourceError(f"No stage can be started on the cluster: {last_line(error)}") from error
            self._losses.note(stage.run.name, error)
        except ResourceError as failure:
            return Failed([failure, error])
        stage.reporter.info("its process on the cluster was lost; it goes on from what is saved")
        self._start(stage)
        return None

    def _artifact(self, reference: str) -> Artifact:
        """Open an artifact that another process published. Raises: ArtifactError if it is not seen for a minute, or
        damaged."""
        deadline = time.monotonic() + SECONDS_TO_SEE
        while not self.store.has(*reference.split("/")) and time.monotonic() < deadline:
            time.sleep(0.5)
        return self.store.get(reference)

    def _drop(self, stage: RunningStage) -> None:
        del self._running[stage.run.name]
        stage.reporting.close()

    # The end

    def close(self) -> None:
        with self._cluster:
            try:
                self._interrupt()
            finally:
                for stage in list(self._running.values()):
                    self._drop(stage)

    def _interrupt(self) -> None:
        """Let what is under way save what it has done; end what does not within a minute, or at another signal."""
        left = []
        for stage in self._running.values():
            if stage.heard:
                stage.reporter.info("is interrupted, and saves what it has done")
            # Not the workers of its shards: the stage itself ends these, once it has saved.
            ray.cancel(stage.answer, recursive=False)
            left.append(stage.answer)
        deadline = time.monotonic() + SECONDS_TO_SAVE
        with deferred_signals() as request:
            while left and not request and time.monotonic() < deadline:
                _, left = ray.wait(left, num_returns=len(left), timeout=1)
                self._listen()
            for answer in left:
                ray.cancel(answer, force=True)


def _computes_alone(run: StageRun) -> bool:
    """Whether one process does all of it: no shards are handed to workers."""
    return not isinstance(run.stage, ShardedStage)


# The process of a stage


class SendingReporter:
    """A reporter that sends each message to the command, of its progress one a second; who is not heard goes on.

    Nothing is waited for but the last message: Ray lends the cores of a task that waits to others.
    """

    def __init__(self, messages: Any, name: str) -> None:
        """`messages`: a Ray queue; `name`: that of the stage."""
        self._messages, self._name = messages, name
        self._step: tuple[tuple[Any, ...], Mapping[str, float]] | None = None
        self._stepped = 0.0
        self._send("")

    def info(self, message: str) -> None:
        self._send("info", message)

    def warning(self, message: str) -> None:
        self._send("warning", message)

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        self._step = (done, total, unit), figures
        if time.monotonic() > self._stepped + SECONDS_BETWEEN_STEPS:
            self._send_step()

    def _send_step(self) -> None:
        """Send the latest progress, if it was not sent."""
        if self._step is not None:
            (values, figures), self._step = self._step, None
            self._stepped = time.monotonic()
            self._send("progress", *values, **figures)

    def _send(self, method: str, *values: Any, **figures: float) -> None:
        self._last = self._messages.actor.put_nowait.remote((self._name, method, values, figures))

    def close(self) -> None:
        """Send what is left, and wait until it is delivered, for some seconds."""
        self._send_step()
        with suppress(RayError):
            ray.get(self._last, timeout=SECONDS_TO_DELIVER)


def run_task(packed: bytes, place: Place, environment: Mapping[str, str] | None, messages: Any, name: str) -> Any:
    """Make the artifact of a stage, in a process that does nothing else. Interrupted, it saves what it can.

    Args:
        packed: a pickled `StageRun`, with the store, how to work, the folders that this machine must see, and the words
            of the command; another version might not even be able to read it.
        environment: of the command, where the process runs on its machine; libraries read it when they are loaded.
        messages: a Ray queue.
        name: of the stage.
    Returns: reference, status and seconds of the artifact; or `Failed`.
    """
    try:
        if environment is not None:
            _take_over(environment)
        place.enter()
        run, store, execution, reads, sys.argv[1:] = pickle.loads(packed)
        return _made(run, store, execution, reads, SendingReporter(messages, name))
    except Terminated:  # its machine is about to go: to be run elsewhere
        raise SystemExit(1) from None
    except Exception as error:
        return Failed.of(error)


def _made(
    run: StageRun, store: Store, execution: Execution, reads: Sequence[Path], reporter: SendingReporter
) -> tuple[str, Status, float]:
    began = time.monotonic()
    for folder in reads:
        require_shared(folder)
    try:
        outcome = make(run.stage, run.config, run.references, store, replace(execution, reporter=reporter))
    finally:
        reporter.close()
    return outcome.artifact.reference, outcome.status, time.monotonic() - began


def own_environment() -> dict[str, str]:
    """The environment of this process, without Ray's own variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def _take_over(environment: Mapping[str, str]) -> None:
    for name in own_environment().keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
