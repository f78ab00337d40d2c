"""Stages run in this process, one after the other."""

from collections.abc import Sequence

from pipelines.executors.executor import Finished, StageExecutor, StageRun


class LocalExecutor(StageExecutor):
    """Runs a stage when it is waited for."""

    def begin(self, ready: Sequence[StageRun]) -> Sequence[StageRun]:
        self._run = ready[0]
        return ready[:1]

    def finished(self) -> Finished:
        return self.run_here(self._run)

    def close(self) -> None:
        """Nothing is under way that nobody waits for."""
