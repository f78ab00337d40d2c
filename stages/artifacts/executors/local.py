"""Shards are computed in this process."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stages.artifacts.executors.executor import Executor, ShardTask
from stages.artifacts.executors.worker import ShardWorker
from stages.artifacts.progress import Written
from stages.reporting import Reporter

if TYPE_CHECKING:
    from stages.artifacts.stage import Shard


class LocalExecutor(Executor):
    """One shard after the other, here; writing one overlaps computing the next."""

    def __init__(self, task: ShardTask, commit: Callable[[Written], None], reporter: Reporter) -> None:
        super().__init__(task, commit, reporter)
        self._worker = ShardWorker(task, commit)

    def run(self, chains: Sequence[Sequence["Shard"]]) -> None:
        for chain in chains:
            for shard in chain:
                self._worker.run(shard)
        self._worker.flush()

    def close(self) -> None:
        self._worker.close()
