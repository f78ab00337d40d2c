"""Settings of evaluate-tasks. Free of torch."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from stages.config import Spelling, StageConfig
from stages.errors import UsageError, did_you_mean
from stages.tasks.readings import Choices, Reading, parse_choices

GOAL = "goal"
Score = Literal["f1", "exact", "goal"]
"""Score of answers in words: F1 of words, exact match, or the joint goal of the turns of a dialogue."""


class EvaluateTasksConfig(StageConfig):
    """How the tests of a stream of tasks are scored."""

    runs_models = True

    split: str = "test"
    """Split to score."""
    memory: Annotated[tuple[str, ...], Field(min_length=1), Spelling("READING[:key=value,…]", repeated=True)] = (
        "none",
    )
    """Readings of memory, each a row: none, mbpa (adapts to the nearest documents), random (to drawn ones), coarse (to
    drawn ones, once for all), episodic (interpolates with the labels of the nearest). A number may be `tune`, or a list
    0.1/0.2: the best on the tune split of the first task is read."""
    tune_split: str = "valid"
    """Split whose documents of the first task choose among the numbers of a reading."""
    score: Annotated[tuple[str, ...], Spelling("[TASK=]f1|exact|goal", repeated=True)] = ()
    """Score of answers in words, of all tasks or of one: F1 of words (f1; where none is said), exact match (exact), or
    whether all turns of a dialogue so far make the right state (goal)."""
    after: Literal["each", "last"] | None = None
    """Weights that are scored: before the first task and after each, or after the last alone; None: each, but last
    where a reading adapts."""
    examples: Annotated[int | None, Field(gt=0), Spelling("N")] = None
    """Examples of each task's test, the first of a drawn order that is always the same; None: all."""

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings of `memory`, parsed; of a row that is tuned the first."""
        return tuple(choices.readings[0] for choices in self.rows)

    @property
    def rows(self) -> tuple[Choices, ...]:
        """The readings of each row, among which it is chosen."""
        return tuple(map(parse_choices, self.memory))

    def scores(self, tasks: Sequence[str]) -> dict[str, Score]:
        """The score of each task. Raises: UsageError for one of no task, or a score that there is not."""
        found: dict[str, Score] = dict.fromkeys(tasks, "f1")
        for text in self.score:
            task, _, score = text.rpartition("=")
            if task and task not in found:
                raise UsageError(f"--score {text}: there is no task {task!r}; {did_you_mean(task, tasks)}")
            if score not in get_args(Score):
                raise UsageError(f"--score {text}: there is no score {score!r}; {did_you_mean(score, get_args(Score))}")
            found |= dict.fromkeys([task] if task else tasks, score)  # type: ignore[arg-type]
        return found

    @field_validator("memory", "score", mode="before")
    @classmethod
    def _listed(cls, texts: Any) -> Any:
        return (texts,) if isinstance(texts, str) else texts

    @field_validator("memory")
    @classmethod
    def _spelled(cls, memory: tuple[str, ...]) -> tuple[str, ...]:
        spelled = tuple(parse_choices(text).spelled for text in memory)
        if len(set(spelled)) < len(spelled):
            raise ValueError("a reading is there twice")
        return spelled
