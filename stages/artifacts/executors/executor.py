"""The interface of an executor of shards, and the one that computes them in this process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from stages.artifacts.executors.worker import ShardTask, ShardWorker
from stages.artifacts.progress import Written
from stages.artifacts.stage import Shard
from stages.reporting import Reporter


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
