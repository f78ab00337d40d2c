"""Interface of an executor of shards, and the one that computes them in this process.

A worker computes shards in any process. Errors are passed to the main process, which raises them.
"""

import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from stages.artifacts.kinds import STAGES
from stages.artifacts.output import Background, Written
from stages.artifacts.stage import Shard, ShardedWork, ShardJob, Stage
from stages.errors import causes
from stages.reporting import Reporter


@dataclass(frozen=True)
class ShardTask:
    """A stage, its run and its plan: all that is needed to compute shards anywhere. It can be
    pickled.
    """

    stage: Stage[Any]
    job: ShardJob[Any]
    plan: Any
    stages: Mapping[str, Any] = field(default_factory=lambda: dict(STAGES.targets))
    """Stages known to this process. Workers get them, because stages from outside may have made
    inputs.
    """

    @property
    def work(self) -> ShardedWork[Any, Any, Any, Any]:
        """The work of the stage, imported in this process."""
        work = self.stage.work(self.job.config)
        assert isinstance(work, ShardedWork)
        return work

    def __setstate__(self, state: dict[str, Any]) -> None:
        STAGES.targets |= state["stages"]
        self.__dict__.update(state)


class ShardWorker:
    """Computes shards one after the other. Each is written while the next is computed, so at most
    two are in memory.

    Models and inputs are opened for the first shard. `flush` waits until the last shard is
    delivered; `close` does, and stops. Both raise its error.
    """

    def __init__(self, task: ShardTask, deliver: Callable[[Written], None]) -> None:
        """`deliver`: called in a background thread with the result of each shard."""
        self._task = task
        self._work = task.work
        self._deliver = deliver
        self._background = Background("write")
        self.flush = self._background.flush
        self.close = self._background.close

    @cached_property
    def _resources(self) -> Any:
        return self._work.open(self._task.job, self._task.plan)

    def run(self, shard: Shard) -> None:
        """Compute a shard and start writing it; the result goes to `deliver`. Call `flush` after
        the last one.

        Raises: the error of this shard, or of writing the previous one.
        """
        output = self._work.run_shard(self._task.job, self._resources, shard)
        self._background.run(lambda: self._deliver(output.written(shard.key)))


class Failed(NamedTuple):
    """An error and its causes, the nearest first; it can be pickled."""

    errors: list[BaseException]

    @classmethod
    def of(cls, error: BaseException) -> "Failed":
        """The error in the form that leaves a worker process."""
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
        return cls([_portable(link) for link in causes(error)])

    def error(self) -> BaseException:
        """The error as it was raised in the worker."""
        for error, cause in zip(self.errors, self.errors[1:], strict=False):
            error.__cause__ = cause
        return self.errors[0]


def _portable(error: BaseException) -> BaseException:
    """An error, or a text instead of one that cannot be pickled."""
    try:
        # Pickled and unpickled: some errors can be pickled, but not unpickled.
        copy: BaseException = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return copy


@dataclass
class Executor(ABC):
    """Decides where shards are computed. The process with the executor commits the results."""

    task: ShardTask
    """The stage and run of the shards."""
    commit: Callable[[Written], None]
    """Called with every shard once it is durable, one at a time."""
    reporter: Reporter
    """Receives messages for the user during the computation."""

    @abstractmethod
    def run(self, chains: Sequence[Sequence[Shard]]) -> None:
        """Compute all shards, those of a chain in order; returns when all are committed.

        Raises: the error of a shard; shards committed before stay committed.
        """

    @abstractmethod
    def close(self) -> None:
        """End all workers, finished or not."""


class LocalExecutor(Executor):
    """Executor in this process: one shard after the other. Writing one overlaps computing the next."""

    @cached_property
    def _worker(self) -> ShardWorker:
        return ShardWorker(self.task, self.commit)

    def run(self, chains: Sequence[Sequence[Shard]]) -> None:
        for chain in chains:
            for shard in chain:
                self._worker.run(shard)
        self._worker.flush()

    def close(self) -> None:
        self._worker.close()
