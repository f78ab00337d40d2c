"""Settings of evaluate-tasks. Free of torch."""

from typing import Annotated, Literal

from pydantic import Field

from stages.config import Spelling, StageConfig


class EvaluateTasksConfig(StageConfig):
    """How the tests of a stream of tasks are scored."""

    split: str = "test"
    """Split to score."""
    after: Literal["each", "last"] = "each"
    """Weights that are scored: before the first task and after each, or after the last alone."""
    examples: Annotated[int | None, Field(gt=0), Spelling("N")] = None
    """Examples of each task's test, the first of a drawn order that is always the same; None: all."""
