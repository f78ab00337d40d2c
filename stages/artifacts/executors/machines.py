"""Machines of a Ray cluster: joining them, requirements of workers, and resources that workers take."""

import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stages.artifacts.kinds import FORECASTS
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.config import StageConfig
from stages.errors import ResourceError, UsageError
from stages.interrupts import deferred_signals

try:
    import ray
    from ray.exceptions import RayActorError, RayError
except ImportError:
    raise UsageError("--executor ray needs the package ray: pip install 'memlm[ray]'.") from None

__all__ = ["RayActorError", "RayError", "ray"]

T = TypeVar("T")
NAMESPACE = "memlm"
MOST_LOSSES = 3
"""Maximum number of workers lost at the same work; more are not by chance."""
SECONDS_TO_END = 30
SECONDS_OF_PATIENCE = 20
"""Seconds after which a message says that the cluster has no room."""
NO_ROOM = "waiting until the cluster has room, or a process has started"


class Place(NamedTuple):
    """Requirements that a worker checks on its machine."""

    folder: str
    """Working folder of the command; relative paths of the store start here."""
    memlm: str

    @classmethod
    def of_this_process(cls) -> "Place":
        return cls(os.getcwd(), version("memlm"))

    def enter(self) -> None:
        """Change to the folder, if this machine has it. Raises: ResourceError if this machine has another memlm."""
        if version("memlm") != self.memlm:
            raise ResourceError(
                f"{os.uname().nodename} has memlm {version('memlm')}, and this command runs {self.memlm}: "
                "install the same on all machines of the cluster."
            )
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


def require_shared(folder: Path) -> None:
    """Raises: ResourceError if this machine does not see a folder of the store."""
    if not folder.is_dir():
        raise ResourceError(
            f"{os.uname().nodename} does not see {folder}: the store must lie on a file system that all machines of "
            "the cluster share, under the same path."
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
    with _handlers_kept():
        try:
            require_answer(address)
            ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise ResourceError(
                f"There is no Ray cluster{address and ' at '}{address}: start one (ray start --head), or say where it "
                "is (RAY_ADDRESS). On one machine --workers N does the same without."
            ) from error
    with redirect_stdout(sys.stderr):  # Ray prints output of machines there until its threads end
        try:
            yield
        finally:
            ray.shutdown()


def require_answer(address: str) -> None:
    """Raises: ConnectionError if nothing listens at HOST:PORT; Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_END).close()
    except OSError as error:
        raise ConnectionError(str(error)) from error


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep our signal handlers, which save progress: Ray replaces them with its own."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pinned(stage: Stage[Any], execution: Execution) -> Execution:
    """The execution with the device of this machine fixed: for a cpu, Ray would not hide GPUs of other machines."""
    return replace(execution, device="cpu" if execution.device_of(stage.Config) == "cpu" else "cuda")


def resources(stage: Stage[Any], config: StageConfig, inputs: Inputs, execution: Execution) -> dict[str, Any]:
    """Resources to request for a worker, so that all workers fit on the machines at once.

    Memory is the minimum that a shard needs, but at most that of the largest machine.
    Ray does not track the memory of a GPU.

    Args:
        config: resolved.
        execution: contains the number of workers.
    """
    machines = [m["Resources"] for m in ray.nodes() if m["Alive"] and m["Resources"].get("CPU", 0) >= 1]
    if execution.device_of(stage.Config) != "cpu":
        cores = [int(m["CPU"] // m["GPU"]) for m in machines if m.get("GPU", 0) >= 1]
        return {"num_cpus": max(1, min(cores, default=1)), "num_gpus": 1}
    side_by_side = -(-execution.workers // max(1, len(machines)))
    room = [int(m.get("memory", 0)) for m in machines]
    needed = FORECASTS.load(stage.name)().memory(config, inputs) if stage.name in FORECASTS else None
    memory = min(needed or 0, max(room, default=0))
    if memory:
        side_by_side = max(1, min(side_by_side, min(room) // memory))
    share = int(min((m["CPU"] for m in machines), default=1)) // side_by_side
    return {"num_cpus": max(1, share), "num_gpus": 0, **({"memory": memory} if memory else {})}


def answered(calls: Mapping[Any, T], meanwhile: Callable[[], object]) -> list[T]:
    """Values, in `calls`, of the calls answered or lost within a second; perhaps none.

    Args:
        meanwhile: called once.
    Raises: the exception of a signal.
    """
    with deferred_signals() as request:  # Ray calls signal handlers, but drops their exceptions
        done, _ = ray.wait(list(calls), timeout=1)
        meanwhile()
        request.check()
    return [calls[one] for one in done]


class Losses(Counter[str]):
    """Numbers of lost processes, by the work that they did."""

    def note(self, work: str, error: Exception) -> None:
        """Count another loss. Raises: ResourceError if there are more than MOST_LOSSES."""
        self[work] += 1
        if self[work] > MOST_LOSSES:
            raise ResourceError(
                f"{self[work]} processes of the cluster were lost at the same work ({work}), as happens when memory "
                f"runs out; what is done is kept. The last one: {last_line(error)}"
            ) from error


def last_line(error: Exception) -> str:
    """Last line of an error, where Ray puts the reason."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
