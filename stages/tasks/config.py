"""Settings of evaluate-tasks. Free of torch."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from stages.config import Spelling, StageConfig
from stages.tasks.readings import Reading, parse_reading

READING = Spelling("READING[:key=value,…]", repeated=True)


class EvaluateTasksConfig(StageConfig):
    """How the tests of a stream of tasks are scored."""

    runs_models = True

    split: str = "test"
    """Split to score."""
    memory: Annotated[tuple[str, ...], Field(min_length=1), Spelling("READING[:key=value,…]", repeated=True)] = (
        "none",
    )
    """Readings of memory, each a row: none, mbpa (adapts to the nearest documents), random (to drawn ones), coarse (to
    drawn ones, once for all), episodic (interpolates with the labels of the nearest)."""
    after: Literal["each", "last"] | None = None
    """Weights that are scored: before the first task and after each, or after the last alone; None: each, but last
    where a reading adapts."""
    examples: Annotated[int | None, Field(gt=0), Spelling("N")] = None
    """Examples of each task's test, the first of a drawn order that is always the same; None: all."""

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings of `memory`, parsed."""
        return tuple(map(parse_reading, self.memory))

    @field_validator("memory", mode="before")
    @classmethod
    def _listed(cls, memory: Any) -> Any:
        return (memory,) if isinstance(memory, str) else memory

    @field_validator("memory")
    @classmethod
    def _spelled(cls, memory: tuple[str, ...]) -> tuple[str, ...]:
        spelled = tuple(parse_reading(text).spelled for text in memory)
        if len(set(spelled)) < len(spelled):
            raise ValueError("a reading is there twice")
        return spelled
