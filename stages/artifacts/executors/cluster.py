"""Computes shards with actors on a Ray cluster; this process distributes shards and commits the
results.

Every machine sees the store under the same path, and has the same memlm installed. Ray transfers
settings and records, never data. If a worker is lost, with its machine or alone, another worker
computes its shard again.
"""

import hashlib
import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stages.artifacts.executors.executor import Executor, Failed, ShardTask, ShardWorker
from stages.artifacts.needs import needs_of
from stages.artifacts.output import Written
from stages.artifacts.stage import Execution, Inputs, Shard, Stage
from stages.config import StageConfig
from stages.errors import ResourceError, UsageError
from stages.interrupts import deferred_signals
from stages.reporting import Reporter

try:
    import ray
    from ray.exceptions import RayActorError, RayError
except ImportError:
    raise UsageError("--executor ray needs the package ray: pip install 'memlm[ray]'.") from None

NAMESPACE = "memlm"
MOST_LOSSES = 3
"""Maximum number of workers lost at the same work; more are not by chance."""
SECONDS_TO_END = 30
SECONDS_OF_PATIENCE = 20
"""Seconds after which a message says that the cluster has no room."""
LOST = object()
"""Answer of a worker that is gone."""


class ShardActor:
    """A process of the cluster that keeps models and inputs open between shards."""

    def __init__(self, task: bytes, folder: str, memlm: str) -> None:
        """Actor that `ready` opens.

        Args:
            task: a pickled `ShardTask`; another version of memlm may fail to unpickle it.
            folder: working folder of the command; relative paths of the store start here.
            memlm: version of memlm that runs the command.
        """
        self._task = task
        self._folder = folder
        self._memlm = memlm
        self._written: list[Written] = []

    def ready(self) -> Failed | None:
        """Open the task. Returns: the fault of this machine, if any."""
        here = os.uname().nodename
        try:
            if version("memlm") != self._memlm:
                raise ResourceError(
                    f"{here} has memlm {version('memlm')}, and this command runs {self._memlm}: install the same on "
                    "all machines of the cluster."
                )
            if os.path.isdir(self._folder):
                os.chdir(self._folder)
            task: ShardTask = pickle.loads(self._task)
            if not task.job.folder.is_dir():
                raise ResourceError(
                    f"{here} does not see {task.job.folder}: the store must lie on a file system that all machines of "
                    "the cluster share, under the same path."
                )
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

    Ray can restart it (max_task_retries), but then the shard waits for the same worker. The cluster
    may have no more room for it, while other workers are idle.
    """

    def __init__(self, name: str, start: Callable[[str], Any]) -> None:
        self.name = name
        self._start = start
        self.chain: deque[Shard] = deque()
        self.begin()

    def begin(self) -> None:
        """Start a worker. Once `awaited` is answered, it can be fed."""
        end_actor(self.name)
        self._actor = self._start(self.name)
        self.is_ready = False
        self.awaited: Any = self._actor.ready.remote()
        """The call that is not answered yet; None: the worker is idle."""

    def feed(self) -> None:
        """Send the next shard of the chain, which stays in the chain until it is written."""
        self.awaited = self._actor.compute.remote(self.chain[0])

    @property
    def task(self) -> str:
        """Name of the current work, for counting losses."""
        return self.chain[0].key if self.is_ready and self.chain else f"start of {self.name}"


class RayExecutor(Executor):
    """Executor with an actor per worker. Actors for which the cluster has no room wait."""

    def __init__(
        self, task: ShardTask, commit: Callable[[Written], None], reporter: Reporter
    ) -> None:
        super().__init__(task, commit, reporter)
        self._slots: list[Slot] = []
        self._losses = Losses()
        self._left: deque[deque[Shard]] = deque()
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
                slot.awaited = None
            self._feed_idle()

    def _begin(self, workers: int) -> None:
        stage = self.task.stage
        job = self.task.job
        needs = resources(stage, job.config, job.inputs, job.execution)
        place = (os.getcwd(), version("memlm"))
        task = ray.put(
            pickle.dumps(
                replace(self.task, job=replace(job, execution=pinned(stage, job.execution)))
            )
        )

        def start(name: str) -> Any:
            settings = {
                "name": name,
                "namespace": NAMESPACE,
                "scheduling_strategy": "SPREAD",
                **needs,
            }
            return ray.remote(ShardActor).options(**settings).remote(task, *place)

        while len(self._slots) < workers:
            self._slots.append(Slot(f"{self._name}{len(self._slots)}", start))

    def _feed_idle(self) -> None:
        for slot in self._slots:
            if slot.awaited is None and not slot.chain and self._left:
                slot.chain = self._left.popleft()
            if slot.awaited is None and slot.chain:
                slot.feed()

    def _next(self) -> Slot:
        """The slot of a worker that has answered, or is lost. Raises: the exception of a signal,
        within a second.
        """
        by_answer = {slot.awaited: slot for slot in self._slots if slot.awaited is not None}
        patience = time.monotonic() + SECONDS_OF_PATIENCE
        while True:
            with (
                deferred_signals() as request
            ):  # Ray calls signal handlers, but drops their exceptions
                done, _ = ray.wait(list(by_answer), timeout=1)
                if time.monotonic() > patience and not any(slot.is_ready for slot in self._slots):
                    patience = float("inf")
                    self.reporter.info(
                        "waiting until the cluster has room, or a process has started"
                    )
                request.check()
            if done:
                return by_answer[done[0]]

    def _answer(self, slot: Slot) -> Any:
        """Answer of a worker. LOST if it is gone: then it is started again, and others may take its
        chain.

        Raises: ResourceError if that happens too often.
        """
        try:
            return ray.get(slot.awaited)
        except RayActorError as error:
            if error.actor_init_failed:
                raise ResourceError(
                    f"No worker can be started on the cluster: {last_line(error)}"
                ) from error
            self._losses.note(slot.task, error)
            self.reporter.info("a worker of the cluster was lost; its shard is computed again")
            if slot.chain:
                self._left.appendleft(slot.chain)
                slot.chain = deque()
            slot.begin()
            return LOST

    def _commit_delivered(self, failed: Slot) -> None:
        """Commit results that other workers have written but not reported yet."""
        waiting = [
            slot.awaited for slot in self._slots if slot is not failed and slot.awaited is not None
        ]
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


class Losses(Counter[str]):
    """Numbers of lost workers, by the work that they did."""

    def note(self, work: str, error: Exception) -> None:
        """Count another loss. Raises: ResourceError if there are more than MOST_LOSSES."""
        self[work] += 1
        if self[work] > MOST_LOSSES:
            raise ResourceError(
                f"{self[work]} processes of the cluster were lost at the same work ({work}), as happens when memory "
                f"runs out; what is done is kept. The last one: {last_line(error)}"
            ) from error


def draft_name(folder: Path) -> str:
    """Prefix for names of all workers of a draft, made of the draft's name and place on disk."""
    place = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
    return f"{folder.parent.name}-{folder.name}-{place}-"


def left_behind(beginning: str) -> list[str]:
    """Names of workers with this prefix that a killed command left."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [
        a["name"] for a in actors if a["namespace"] == NAMESPACE and a["name"].startswith(beginning)
    ]


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
    raise ResourceError(
        f"The worker {name} of the cluster does not end; run the same command again."
    )


@contextmanager
def joined() -> Iterator[None]:
    """Connect to the cluster named by RAY_ADDRESS, or the one on this machine, inside the block.

    Raises: ResourceError if there is none.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS", "")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _require_answer(address)
        ray.init(
            address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
    except ConnectionError as error:
        raise ResourceError(
            f"There is no Ray cluster{address and ' at '}{address}: start one (ray start --head), or say where it "
            "is (RAY_ADDRESS). On one machine --workers N does the same without."
        ) from error
    finally:
        # Ray replaces our signal handlers, which save progress.
        for number, handler in handlers.items():
            signal.signal(number, handler)
    with redirect_stdout(sys.stderr):  # Ray prints output of machines there until its threads end
        try:
            yield
        finally:
            ray.shutdown()


def _require_answer(address: str) -> None:
    """Check that something listens at HOST:PORT; Ray itself would wait for minutes. Raises:
    ConnectionError.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_END).close()
    except OSError as error:
        raise ConnectionError(str(error)) from error


def pinned(stage: Stage[Any], execution: Execution) -> Execution:
    """The execution with the device of this machine fixed: for a cpu, Ray would not hide GPUs of
    other machines.
    """
    return replace(
        execution, device="cpu" if execution.device_of(stage.Config) == "cpu" else "cuda"
    )


def resources(
    stage: Stage[Any], config: StageConfig, inputs: Inputs, execution: Execution
) -> dict[str, Any]:
    """Resources to request for a worker, so that all workers fit on the machines at once.

    Memory is the minimum that a shard needs, but at most that of the largest machine.
    Ray does not track the memory of a GPU.

    Args:
        config: resolved.
        execution: contains the number of workers.
    """
    machines = []
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            machines.append(node["Resources"])

    if execution.device_of(stage.Config) != "cpu":
        # each GPU of a machine has an equal share of its cores
        cores = []
        for machine in machines:
            if machine.get("GPU", 0) >= 1:
                cores.append(int(machine["CPU"] // machine["GPU"]))
        return {"num_cpus": max(1, min(cores, default=1)), "num_gpus": 1}

    workers_each = -(-execution.workers // max(1, len(machines)))
    room = [int(machine.get("memory", 0)) for machine in machines]
    needs = needs_of(stage.name, config, inputs)
    memory = min(needs.memory + needs.device_memory, max(room, default=0))
    if memory:
        workers_each = max(1, min(workers_each, min(room) // memory))
    fewest_cores = int(min((machine["CPU"] for machine in machines), default=1))
    result = {"num_cpus": max(1, fewest_cores // workers_each), "num_gpus": 0}
    if memory:
        result["memory"] = memory
    return result


def last_line(error: Exception) -> str:
    """Last line of an error, where Ray puts the reason."""
    return next(
        (line.strip() for line in reversed(str(error).splitlines()) if line.strip()),
        type(error).__name__,
    )
