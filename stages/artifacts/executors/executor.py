"""The interface of an executor of shards."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stages.artifacts.kinds import STAGES
from stages.artifacts.progress import Written
from stages.reporting import Reporter

if TYPE_CHECKING:
    from stages.artifacts.stage import Shard, ShardedStage, ShardJob


@dataclass(frozen=True)
class ShardTask:
    """A stage, its run and its plan, from which shards are computed anywhere; all of it can be pickled."""

    stage: "ShardedStage[Any, Any, Any, Any]"
    job: "ShardJob[Any]"
    plan: Any
    stages: Mapping[str, Any] = field(default_factory=lambda: dict(STAGES.targets))
    """Stages that this process knows: those from outside made inputs, and a worker is told of them."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        STAGES.targets |= state["stages"]
        self.__dict__.update(state)


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
    def run(self, chains: Sequence[Sequence["Shard"]]) -> None:
        """Compute the shards of each chain in order, in one place; returns when all are committed.

        Raises: what a shard raised; those committed before stay so.
        """

    @abstractmethod
    def close(self) -> None:
        """End what was begun, finished or not."""
