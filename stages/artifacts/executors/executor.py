"""The interface of an executor of shards, and the one that computes them in this process.

A worker computes shards in whatever process; an error travels from there to the process that raises it.
"""

import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from stages.artifacts.kinds import STAGES
from stages.artifacts.output import Background, Written
from stages.artifacts.stage import Shard, ShardedStage, ShardJob
from stages.reporting import Reporter


@dataclass(frozen=True)
class ShardTask:
    """A stage, its run and its plan, from which shards are computed anywhere; all of it can be pickled."""

    stage: ShardedStage[Any, Any, Any, Any]
    job: ShardJob[Any]
    plan: Any
    stages: Mapping[str, Any] = field(default_factory=lambda: dict(STAGES.targets))
    """Stages that this process knows: those from outside made inputs, and a worker is told of them."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        STAGES.targets |= state["stages"]
        self.__dict__.update(state)


class ShardWorker:
    """Computes shards one after the other; each is written while the next is computed, so two are in memory at most.

    Models and inputs are opened for the first shard.
    """

    def __init__(self, task: ShardTask, deliver: Callable[[Written], None]) -> None:
        """`deliver`: called in a background thread with what each shard wrote."""
        self._task = task
        self._deliver = deliver
        self._background = Background("write")

    @cached_property
    def _work(self) -> Any:
        return self._task.stage.open(self._task.job, self._task.plan)

    def run(self, shard: Shard) -> None:
        """Compute a shard and begin to write it; what it wrote goes to `deliver`. Call `flush` behind the last.

        Raises: what went wrong with it, or with writing the one before.
        """
        output = self._task.stage.run_shard(self._task.job, self._work, shard)
        self._background.run(lambda: self._deliver(output.written(shard.key)))

    def flush(self) -> None:
        """Wait until the last shard is delivered. Raises what went wrong with it."""
        self._background.flush()

    def close(self) -> None:
        """Deliver the last shard and stop."""
        self._background.close()


class Failed(NamedTuple):
    """An error, and what that came of, the nearest first; it can be pickled."""

    errors: list[BaseException]

    @classmethod
    def of(cls, error: BaseException) -> "Failed":
        """As it leaves a worker process."""
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
        return cls(list(_portable(error)))

    def error(self) -> BaseException:
        """The error as it was raised in the worker."""
        for error, cause in zip(self.errors, self.errors[1:], strict=False):
            error.__cause__ = cause
        return self.errors[0]


def _portable(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came of, each able to leave the process."""
    link: BaseException | None = error
    while link is not None:
        try:
            # There and back: some errors can be pickled, but not be made again from that.
            yield pickle.loads(pickle.dumps(link))
        except Exception:
            yield RuntimeError(f"{type(link).__name__}: {link}")
        link = link.__cause__ or link.__context__


class Executor(ABC):
    """Decides where shards are computed; what they wrote is committed by the process that made it.

    Args:
        task: what the shards belong to.
        commit: called with every shard as soon as it is durable, one after the other.
        reporter: hears of what the user should know while it computes.
    """

    def __init__(self, task: ShardTask, commit: Callable[[Written], None], reporter: Reporter) -> None:
        self.task = task
        self.commit = commit
        self.reporter = reporter

    @abstractmethod
    def run(self, chains: Sequence[Sequence[Shard]]) -> None:
        """Compute the shards of each chain in order, in one place; returns when all are committed.

        Raises: what a shard raised; those committed before stay so.
        """

    @abstractmethod
    def close(self) -> None:
        """End what was begun, finished or not."""


class LocalExecutor(Executor):
    """One shard after the other, here; writing one overlaps computing the next."""

    def __init__(self, task: ShardTask, commit: Callable[[Written], None], reporter: Reporter) -> None:
        super().__init__(task, commit, reporter)
        self._worker = ShardWorker(task, commit)

    def run(self, chains: Sequence[Sequence[Shard]]) -> None:
        for chain in chains:
            for shard in chain:
                self._worker.run(shard)
        self._worker.flush()

    def close(self) -> None:
        self._worker.close()
