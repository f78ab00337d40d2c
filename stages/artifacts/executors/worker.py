"""Computing shards, in whatever process."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stages.artifacts.background import Background
from stages.artifacts.executors.executor import ShardTask
from stages.artifacts.progress import Written

if TYPE_CHECKING:
    from stages.artifacts.stage import Shard


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

    def run(self, shard: "Shard") -> None:
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
