"""Shards are computed by actors on a Ray cluster; this process hands them out and commits what they wrote.

Every machine sees the store under the same path, and has the same memlm installed. Through Ray go settings and
records, never data. A worker that is lost, with its machine or alone, costs the shard that it computed: another
computes it again.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from stages.artifacts.executors.executor import Executor, ShardTask
from stages.artifacts.executors.failed import Failed
from stages.artifacts.executors.worker import ShardWorker
from stages.artifacts.progress import Written
from stages.errors import ResourceError, UsageError
from stages.interrupts import deferred_signals
from stages.reporting import Reporter

if TYPE_CHECKING:
    from stages.artifacts.stage import Shard

try:
    import ray
    from ray.exceptions import RayActorError, RayError
except ImportError:
    raise UsageError("--executor ray needs the package ray: pip install 'memlm[ray]'.") from None

NAMESPACE = "memlm"
MOST_LOSSES = 3
"""Of workers with one shard, or before their first: more are no accident."""
SECONDS_TO_END = 30
SECONDS_OF_PATIENCE = 20
"""After which it is said that the cluster has no room."""


class Place(NamedTuple):
    """What a worker must find on its machine."""

    folder: str
    """The working folder of the command, from which the paths of the store are read."""
    memlm: str


class ShardActor:
    """A process of the cluster, which holds models and inputs open from one shard to the next."""

    def __init__(self, task: bytes, place: Place) -> None:
        """`task`: a pickled `ShardTask`, which another version might not even be able to read."""
        self._task, self._place = task, place
        self._written: list[Written] = []

    def ready(self) -> Failed | None:
        """Open the task; what is wrong with this machine, if something is."""
        try:
            self._require_version()
            if os.path.isdir(self._place.folder):
                os.chdir(self._place.folder)
            task: ShardTask = pickle.loads(self._task)
            _require_shared(task.job.folder)
            self._worker = ShardWorker(task, self._written.append)
        except Exception as error:
            return Failed.of(error)
        return None

    def compute(self, shard: "Shard") -> Written | Failed:
        """Compute and write a shard."""
        try:
            self._worker.run(shard)
            self._worker.flush()
        except Exception as error:
            return Failed.of(error)
        return self._written.pop()

    def _require_version(self) -> None:
        if version("memlm") != self._place.memlm:
            raise ResourceError(
                f"{os.uname().nodename} has memlm {version('memlm')}, and this command runs {self._place.memlm}: "
                "install the same on all machines of the cluster."
            )


def _require_shared(folder: Path) -> None:
    if not folder.is_dir():
        raise ResourceError(
            f"{os.uname().nodename} does not see {folder}: the store must lie on a file system that all machines of "
            "the cluster share, under the same path."
        )


class Slot:
    """The place of one worker, which is started again where it is lost."""

    def __init__(self, name: str, start: Callable[[str], Any]) -> None:
        self.name, self._start = name, start
        self.chain: deque[Shard] = deque()
        self.begin()

    def begin(self) -> None:
        """Start a worker. Once it answers `awaited`, it can be fed."""
        end_actor(self.name)
        self._actor = self._start(self.name)
        self.is_ready, self.awaited = False, self._actor.ready.remote()

    def feed(self) -> None:
        """Hand over the next shard of the chain, which stays there until it is written."""
        self.awaited = self._actor.compute.remote(self.chain[0])

    @property
    def task(self) -> str:
        """What it does now, for counting what is lost."""
        return self.chain[0].key if self.is_ready and self.chain else f"start of {self.name}"


class RayExecutor(Executor):
    """As many actors as there are workers, if the cluster has room; those that find none wait for it."""

    def __init__(self, task: ShardTask, commit: Callable[[Written], None], reporter: Reporter) -> None:
        super().__init__(task, commit, reporter)
        self._slots: list[Slot] = []
        self._losses = Counter[str]()
        self._left: deque[deque[Shard]] = deque()
        self._idle: list[Slot] = []
        self._name = draft_name(task.job.folder)
        self._joined = ExitStack()
        self._joined.enter_context(joined())
        for name in left_behind(self._name):
            end_actor(name)

    def run(self, chains: Sequence[Sequence["Shard"]]) -> None:
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
        needs = resources(self.task)
        place = Place(os.getcwd(), version("memlm"))
        task = ray.put(pickle.dumps(pinned(self.task)))

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
        """The slot of a worker that has answered, or is lost. Raises: what a signal asks for, within a second."""
        by_answer = {slot.awaited: slot for slot in self._slots if slot not in self._idle}
        told = time.monotonic() + SECONDS_OF_PATIENCE
        with deferred_signals() as request:  # Ray calls handlers, and drops what they raise
            while True:
                done, _ = ray.wait(list(by_answer), timeout=1)
                request.check()
                if done:
                    return by_answer[done[0]]
                if time.monotonic() > told and not any(slot.is_ready for slot in self._slots):
                    told = float("inf")
                    self.reporter.info("waiting until the cluster has room, or a worker has started")

    def _answer(self, slot: Slot) -> Any:
        """What a worker says. LOST if it is gone: its chain waits for others, and it is started again.

        Raises: ResourceError if that happens too often.
        """
        try:
            return ray.get(slot.awaited)
        except RayActorError as error:
            if error.actor_init_failed:
                raise ResourceError(f"No worker can be started on the cluster: {last_line(error)}") from error
            task = slot.task
            self._losses[task] += 1
            if self._losses[task] > MOST_LOSSES:
                raise ResourceError(
                    f"{self._losses[task]} workers of the cluster were lost at the same work ({task}), as happens when "
                    f"memory runs out; what is done is kept. The last one: {last_line(error)}"
                ) from error
            self.reporter.info("a worker of the cluster was lost; its shard is computed again")
            if slot.chain:
                self._left.appendleft(slot.chain)
                slot.chain = deque()
            slot.begin()
            return LOST

    def _commit_delivered(self, failed: Slot) -> None:
        """What others have written of which nobody has heard yet."""
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


@contextmanager
def joined() -> Iterator[None]:
    """Inside, this process belongs to the cluster that RAY_ADDRESS names, or that runs on this machine.

    Raises: ResourceError if there is none.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS", "")
    with _handlers_kept():
        try:
            require_answer(address)
            ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise ResourceError(
                f"There is no Ray cluster{address and ' at '}{address}: start one (ray start --head), or say where it "
                "is (RAY_ADDRESS). On one machine --workers N does the same without."
            ) from error
    with redirect_stdout(sys.stderr):  # where Ray writes what machines have to say, until its threads have ended
        try:
            yield
        finally:
            ray.shutdown()


def require_answer(address: str) -> None:
    """Raises: ConnectionError if nothing listens at HOST:PORT, for which Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_END).close()
    except OSError as error:
        raise ConnectionError(str(error)) from error


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray puts its own in the place of handlers of signals, which save progress."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def computes_on_gpu(task: ShardTask) -> bool:
    return task.stage.device(task.job.execution) != "cpu"


def pinned(task: ShardTask) -> ShardTask:
    """The same, with the device of this machine: where it is cpu, Ray would not hide the GPUs of others."""
    device = "cuda" if computes_on_gpu(task) else "cpu"
    return replace(task, job=replace(task.job, execution=replace(task.job.execution, device=device)))


def resources(task: ShardTask) -> dict[str, Any]:
    """What a worker takes of its machine, so that all of them fit, side by side, on the machines that are there.

    Memory is what the stage says that it cannot be made without, of the largest machine at the most: there is no other.
    Of a GPU's memory Ray knows nothing.
    """
    machines = [m["Resources"] for m in ray.nodes() if m["Alive"] and m["Resources"].get("CPU", 0) >= 1]
    if computes_on_gpu(task):
        cores = [int(m["CPU"] // m["GPU"]) for m in machines if m.get("GPU", 0) >= 1]
        return {"num_cpus": max(1, min(cores, default=1)), "num_gpus": 1}
    side_by_side = -(-task.job.execution.workers // max(1, len(machines)))
    room = [int(m.get("memory", 0)) for m in machines]
    memory = min(task.stage.cost(task.job.config, task.job.inputs).memory or 0, max(room, default=0))
    if memory:
        side_by_side = max(1, min(side_by_side, min(room) // memory))
    share = int(min((m["CPU"] for m in machines), default=1)) // side_by_side
    return {"num_cpus": max(1, share), "num_gpus": 0, **({"memory": memory} if memory else {})}


def draft_name(folder: Path) -> str:
    """How the names of all workers begin that write into a draft: its own, and where on the disk it lies."""
    place = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
    return f"{folder.parent.name}-{folder.name}-{place}-"


def left_behind(beginning: str) -> list[str]:
    """Workers of a command that was killed, whose names begin so."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [a["name"] for a in actors if a["namespace"] == NAMESPACE and a["name"].startswith(beginning)]


def end_actor(name: str) -> None:
    """End a worker of this name, if there is one, and wait until it is gone: nothing may write after it.

    Raises: ResourceError if it does not end.
    """
    deadline = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < deadline:
        try:
            ray.kill(ray.get_actor(name, namespace=NAMESPACE))
        except (ValueError, RayError):  # there is none, or it has just ended
            return
        time.sleep(0.05)
    raise ResourceError(f"The worker {name} of the cluster does not end; run the same command again.")


def last_line(error: Exception) -> str:
    """Where Ray puts the reason."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
