"""Stages run as tasks of a Ray cluster, side by side; this process begins them and hears how they end.

A stage whose shards workers compute, or that reads files of the user, is looked after on the machine of the command, by
a process that takes no core of the cluster: it waits for workers. Any other, which is training, takes what a worker
takes, wherever there is room. Locks, drafts and what is gone on with are those of every process that makes an artifact.
"""

import pickle
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pipelines.executors.executor import Finished, Reporters, StageExecutor, StageRun
from pipelines.executors.stage_task import Board, Made, StageTask, Told, own_environment, run_task
from stages.artifacts.artifact import Artifact
from stages.artifacts.executors.failed import Failed
from stages.artifacts.executors.machines import (
    MOST_LOSSES,
    SECONDS_OF_PATIENCE,
    Place,
    RayError,
    joined,
    last_line,
    pinned,
    ray,
    resources,
)
from stages.artifacts.make import Outcome, ResolvedWork, plan
from stages.artifacts.stage import Execution, Inputs, ShardedStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import ResourceError
from stages.interrupts import deferred_signals
from stages.reporting import Reporter, Silent

SECONDS_TO_SAVE = 60
"""For stages that are interrupted."""
SECONDS_TO_SEE = 60
"""Until a file system shows what another machine published."""


class Planned(NamedTuple):
    """A planned stage: its work, with resolved settings and inputs."""

    work: ResolvedWork
    config: StageConfig
    inputs: Inputs


@dataclass(eq=False)
class UnderWay:
    """A stage that was begun, until it ends."""

    run: StageRun
    reference: str
    """Reference of its artifact."""
    options: dict[str, Any]
    """Options of its Ray task: resources and place."""
    arguments: tuple[Any, ...]
    """Arguments of the task, without the board and the name."""
    reporter: Reporter
    told: ExitStack
    """Ends the reporter."""
    answer: Any = None
    since: float = 0.0
    heard: bool = False
    """Whether it has told that it runs; until then it waits for room."""
    losses: int = 0


class ClusterExecutor(StageExecutor):
    """As many stages side by side as there are workers."""

    def __init__(self, store: Store, execution: Execution, reporters: Reporters) -> None:
        super().__init__(store, execution, reporters)
        self._planned: dict[str, Planned] = {}
        self._under_way: dict[str, UnderWay] = {}
        self._ended: deque[Finished] = deque()
        self._cluster = ExitStack()
        self._task: Any = None
        self._board: Any = None
        self._here: dict[str, Any] = {}

    # Beginning

    def begin(self, ready: Sequence[StageRun]) -> Sequence[StageRun]:
        """Begin the stages that are ready; of two that make the same artifact the second waits for the first."""
        begun, missing = [], []
        for run in ready:
            work = self._plan(run).work
            if self.store.has(work.kind, work.id):
                self._ended.append(self.run_here(run))
                begun.append(run)
            else:
                missing.append(run)
        alone = sum(map(_computes_alone, [*missing, *(other.run for other in self._under_way.values())]))
        for run in missing:
            makers = {other.reference for other in self._under_way.values()}
            if len(makers) < self.execution.workers and self._plan(run).work.reference not in makers:
                self._begin(run, min(self.execution.workers, alone))
                begun.append(run)
        return begun

    def _plan(self, run: StageRun) -> Planned:
        if run.name not in self._planned:
            planned = plan(run.stage, run.config, run.references, self.store, self.execution)
            self._planned[run.name] = Planned(*planned)
        return self._planned[run.name]

    def _begin(self, run: StageRun, alone: int) -> None:
        """Begin a stage; `alone`: how many share the cluster, it among them, that compute in one process each."""
        self._join()
        work, config, inputs = self._plan(run)
        execution = replace(pinned(run.stage, self.execution), reporter=Silent(), command=run.command)
        environment = None
        if _computes_alone(run) and not inputs.files:
            needs = resources(run.stage, config, inputs, replace(execution, workers=alone))
            options = {**needs, "scheduling_strategy": "SPREAD"}
        else:
            options, environment = self._here, own_environment()
        reads = [artifact.path for artifact in inputs.artifacts.values()]
        task = StageTask(run.stage, run.config, run.references, self.store, execution, reads, sys.argv[1:])
        arguments = (pickle.dumps(task), Place.of_this_process(), environment)
        told = ExitStack()
        reporter = told.enter_context(self.reporters(run.name))
        self._under_way[run.name] = UnderWay(run, work.reference, options, arguments, reporter, told)
        self._start(self._under_way[run.name])

    def _join(self) -> None:
        if self._task is None:
            self._cluster.enter_context(joined())
            # a process for each stage, and this one decides what is done where it is lost
            self._task = ray.remote(max_calls=1, max_retries=0)(run_task)
            node = ray.get_runtime_context().get_node_id()
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            self._here = {"num_cpus": 0, "scheduling_strategy": here}
            self._board = ray.remote(Board).options(max_restarts=-1, **self._here).remote()

    def _start(self, stage: UnderWay) -> None:
        task = self._task.options(**stage.options)
        stage.answer = task.remote(*stage.arguments, self._board, stage.run.name)
        stage.since, stage.heard = time.monotonic(), False

    # Waiting

    def finished(self) -> Finished:
        while not self._ended:
            by_answer = {stage.answer: stage for stage in self._under_way.values()}
            with deferred_signals() as request:  # Ray calls handlers, and drops what they raise
                done, _ = ray.wait(list(by_answer), timeout=1)
                self._listen()
                request.check()
            for answer in done:
                self._end(by_answer[answer])
        return self._ended.popleft()

    def _listen(self) -> None:
        """Tell what stages told since the last time."""
        for name, calls in self._taken().items():
            if name in self._under_way:
                stage = self._under_way[name]
                stage.heard = True
                for call in calls:
                    getattr(stage.reporter, call.method)(*call.values, **call.figures)
        for stage in self._under_way.values():
            if not stage.heard and time.monotonic() > stage.since + SECONDS_OF_PATIENCE:
                stage.since = float("inf")
                stage.reporter.info("waiting until the cluster has room, or a process has started")

    def _taken(self) -> dict[str, list[Told]]:
        try:
            told: dict[str, list[Told]] = ray.get(self._board.take.remote(), timeout=SECONDS_OF_PATIENCE)
        except RayError:  # it is started again
            return {}
        return told

    def _end(self, stage: UnderWay) -> None:
        """Take note of what a stage came to. Raises: what it raised; ResourceError if it is lost too often."""
        try:
            answer: Made | Failed = ray.get(stage.answer)
        except ray.exceptions.RayTaskError as error:
            self._drop(stage)
            raise ResourceError(f"No stage can be started on the cluster: {last_line(error)}") from error
        except RayError as error:
            self._start_again(stage, error)
            return
        if isinstance(answer, Failed):
            stage.reporter.info("failed")
        self._drop(stage)
        if isinstance(answer, Failed):
            raise answer.error()
        outcome = Outcome(self._artifact(answer.reference), answer.status)
        self._ended.append(Finished(stage.run.name, outcome, answer.seconds))

    def _start_again(self, stage: UnderWay, error: RayError) -> None:
        stage.losses += 1
        if stage.losses > MOST_LOSSES:
            self._drop(stage)
            raise ResourceError(
                f"{stage.losses} processes of the cluster were lost at the same stage ({stage.run.name}), as happens "
                f"when memory runs out; what is done is kept. The last one: {last_line(error)}"
            ) from error
        stage.reporter.info("its process on the cluster was lost; it goes on from what is saved")
        self._start(stage)

    def _artifact(self, reference: str) -> Artifact:
        """Open an artifact that another process published. Raises: ArtifactError if it is not seen for a minute, or
        damaged."""
        deadline = time.monotonic() + SECONDS_TO_SEE
        while not self.store.has(*reference.split("/")) and time.monotonic() < deadline:
            time.sleep(0.5)
        return self.store.get(reference)

    def _drop(self, stage: UnderWay) -> None:
        del self._under_way[stage.run.name]
        stage.told.close()

    # The end

    def close(self) -> None:
        with self._cluster:
            try:
                self._interrupt()
            finally:
                for stage in list(self._under_way.values()):
                    self._drop(stage)

    def _interrupt(self) -> None:
        """Let what is under way save what it has done; end what does not within a minute, or at another signal."""
        left = []
        for stage in self._under_way.values():
            if stage.heard:
                stage.reporter.info("is interrupted, and saves what it has done")
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
