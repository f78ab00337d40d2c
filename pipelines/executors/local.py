"""Runs a stage in this process, here and now."""

from collections.abc import Mapping
from typing import Any

from pipelines.catalogue import stage_of
from stages.artifacts.make import Outcome, make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig


def run_stage(
    command: str, config: StageConfig, references: Mapping[str, Any], store: Store, execution: Execution
) -> Outcome:
    """Make the artifact of a command, or find it. Raises whatever the stage raises."""
    return make(stage_of(command), config, references, store, execution)
