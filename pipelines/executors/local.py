"""Runs stages in this process, one after the other."""

from collections.abc import Mapping
from typing import Any

from pipelines.catalogue import stage_of
from stages.artifacts.make import Outcome, make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig


class LocalExecutor:
    """An executor makes the artifact of one command; this one does it here and now."""

    def run(
        self,
        command: str,
        config: StageConfig,
        references: Mapping[str, Any],
        store: Store,
        execution: Execution,
    ) -> Outcome:
        """Make the artifact, or find it. Raises whatever the stage raises."""
        return make(stage_of(command), config, references, store, execution)
