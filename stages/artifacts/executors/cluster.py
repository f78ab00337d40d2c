"""Computes shards with actors on a Ray cluster; this process distributes shards and commits the results.

Every machine sees the store under the same path, and has the same memlm installed. Ray transfers settings and records,
never data. If a worker is lost, with its machine or alone, another worker computes its shard again.
"""

import hashlib
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from stages.artifacts.executors.executor import Executor, Failed, ShardTask, ShardWorker
from stages.artifacts.executors.machines import (
    NAMESPACE,
    NO_ROOM,
    SECONDS_OF_PATIENCE,
    SECONDS_TO_END,
    Losses,
    Place,
    RayActorError,
    RayError,
    answered,
    joined,
    last_line,
    pinned,
    ray,
    require_shared,
    resources,
)
from stages.artifacts.output import Written
from stages.artifacts.stage import Shard
from stages.errors import ResourceError
from stages.reporting import Reporter


class ShardActor:
    """A process of the cluster that keeps models and inputs open between shards."""

    def __init__(self, task: bytes, place: Place) -> None:
        """`task`: a pickled `ShardTask`; `ready` unpickles it, because another version of memlm may fail to."""
        self._task, self._place = task, place
        self._written: list[Written] = []

    def ready(self) -> Failed | None:
        """Open the task. Returns: the fault of this machine, if any."""
        try:
            self._place.enter()
            task: ShardTask = pickle.loads(self._task)
            require_shared(task.job.folder)
            self._worker = ShardWorker(task, self._written.append)
        except Exception as error:
            return Failed.of(error)
        return None

    def compute(self, shard: Shard) -> Written | Failed:
        """Compute and write a shard."""
        try:
            self._worker.run(shard)
            self._worker.flush()
        except Exception as error:
            return Failed.of(error)
        return self._written.pop()


class Slot:
    """Handle of one worker, which is started again if it is lost.

    Ray can restart it (max_task_retries), but then the shard waits for the same worker. The cluster may have no more
    room for it, while other workers are idle.
    """

    def __init__(self, name: str, start: Callable[[str], Any]) -> None:
        self.name, self._start = name, start
        self.chain: deque[Shard] = deque()
        self.begin()

    def begin(self) -> None:
        """Start a worker. Once `awaited` is answered, it can be fed."""
        end_actor(self.name)
        self._actor = self._start(self.name)
        self.is_ready, self.awaited = False, self._actor.ready.remote()

    def feed(self) -> None:
        """Send the next shard of the chain, which stays in the chain until it is written."""
        self.awaited = self._actor.compute.remote(self.chain[0])

    @property
    def task(self) -> str:
        """Name of the current work, for counting losses."""
        return self.chain[0].key if self.is_ready and self.chain else f"start of {self.name}"


class RayExecutor(Executor):
    """Executor with an actor per worker. Actors for which the cluster has no room wait."""

    def __init__(self, task: ShardTask, commit: Callable[[Written], None], reporter: Reporter) -> None:
        super().__init__(task, commit, reporter)
        self._slots: list[Slot] = []
        self._losses = Losses()
        self._left: deque[deque[Shard]] = deque()
        self._idle: list[Slot] = []
        self._name = draft_name(task.job.folder)
        self._joined = ExitStack()
        self._joined.enter_context(joined())
        for name in left_behind(self._name):
            end_actor(name)

    def run(self, chains: Sequence[Sequence[Shard]]) -> None:
        self._left = deque(deque(chain) for chain in chains)
        missing = sum(map(len, chains))
        self._begin(min(self.task.job.execution.workers, len(chains)))
        self._feed_idle()
        while missing:
            slot = self._next()
            message = self._answer(slot)
            if isinstance(message, Failed):
                self._commit_delivered(slot)
                raise message.error()
            if isinstance(message, Written):
                self.commit(message)
                missing -= 1
                slot.chain.popleft()
            if message is not LOST:
                slot.is_ready = True
                self._idle.append(slot)
            self._feed_idle()

    def _begin(self, wanted: int) -> None:
        stage, job = self.task.stage, self.task.job
        needs, place = resources(stage, job.config, job.inputs, job.execution), Place.of_this_process()
        task = ray.put(pickle.dumps(replace(self.task, job=replace(job, execution=pinned(stage, job.execution)))))

        def start(name: str) -> Any:
            settings = {"name": name, "namespace": NAMESPACE, "scheduling_strategy": "SPREAD", **needs}
            return ray.remote(ShardActor).options(**settings).remote(task, place)

        while len(self._slots) < wanted:
            self._slots.append(Slot(f"{self._name}{len(self._slots)}", start))

    def _feed_idle(self) -> None:
        for slot in list(self._idle):
            if not slot.chain and self._left:
                slot.chain = self._left.popleft()
            if slot.chain:
                self._idle.remove(slot)
                slot.feed()

    def _next(self) -> Slot:
        """The slot of a worker that has answered, or is lost. Raises: the exception of a signal, within a second."""
        by_answer = {slot.awaited: slot for slot in self._slots if slot not in self._idle}
        self._patience = time.monotonic() + SECONDS_OF_PATIENCE
        while not (done := answered(by_answer, self._report_waiting)):
            pass
        return done[0]

    def _report_waiting(self) -> None:
        if time.monotonic() > self._patience and not any(slot.is_ready for slot in self._slots):
            self._patience = float("inf")
            self.reporter.info(NO_ROOM)

    def _answer(self, slot: Slot) -> Any:
        """Answer of a worker. LOST if it is gone: then it is started again, and others may take its chain.

        Raises: ResourceError if that happens too often.
        """
        try:
            return ray.get(slot.awaited)
        except RayActorError as error:
            if error.actor_init_failed:
                raise ResourceError(f"No worker can be started on the cluster: {last_line(error)}") from error
            self._losses.note(slot.task, error)
            self.reporter.info("a worker of the cluster was lost; its shard is computed again")
            if slot.chain:
                self._left.appendleft(slot.chain)
                slot.chain = deque()
            slot.begin()
            return LOST

    def _commit_delivered(self, failed: Slot) -> None:
        """Commit results that other workers have written but not reported yet."""
        waiting = [slot.awaited for slot in self._slots if slot is not failed and slot not in self._idle]
        done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        for answer in done:
            try:
                message = ray.get(answer)
            except RayError:
                continue
            if isinstance(message, Written):
                self.commit(message)

    def close(self) -> None:
        with self._joined:
            for slot in self._slots:
                end_actor(slot.name)


LOST = object()


def draft_name(folder: Path) -> str:
    """Prefix for names of all workers of a draft, made of the draft's name and place on disk."""
    place = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
    return f"{folder.parent.name}-{folder.name}-{place}-"


def left_behind(beginning: str) -> list[str]:
    """Names of workers with this prefix that a killed command left."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [a["name"] for a in actors if a["namespace"] == NAMESPACE and a["name"].startswith(beginning)]


def end_actor(name: str) -> None:
    """End a worker of this name, if any, and wait until it is gone, so that it writes nothing more.

    Raises: ResourceError if it does not end.
    """
    deadline = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < deadline:
        try:
            ray.kill(ray.get_actor(name, namespace=NAMESPACE))
        except (ValueError, RayError):  # no worker has this name, or it has just ended
            return
        time.sleep(0.05)
    raise ResourceError(f"The worker {name} of the cluster does not end; run the same command again.")
