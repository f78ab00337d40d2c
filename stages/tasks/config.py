"""Settings of evaluate-tasks. Free of torch."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from stages.config import Spelling, StageConfig
from stages.errors import UsageError, did_you_mean
from stages.tasks.grammar import Choices, parse_choices
from stages.tasks.readings import Reading

GOAL = "goal"
Score = Literal["f1", "exact", "goal"]
"""Score of answers in words: F1 of words, exact match, or the joint goal of the turns of a
dialogue.
"""


class EvaluateTasksConfig(StageConfig):
    """How the tests of a stream of tasks are scored."""

    runs_models = True

    split: str = "test"
    """Split to score."""
    memory: Annotated[
        tuple[str, ...], Field(min_length=1), Spelling("READING[:key=value,…]", repeated=True)
    ] = ("none",)
    """Readings of memory, each a row: none, mbpa (adapts to the nearest documents), random (to
    drawn ones), coarse (to drawn ones, once for all), episodic (interpolates with the labels of the
    nearest). Keys are k, steps, lr, anchor, part, of mbpa also weight; of episodic k,
    temperature, weight. A number may be `tune`, or a list 0.1/0.2: the best on the tune split of
    the first task is read."""
    tune_split: str = "valid"
    """Split whose documents of the first task choose among the numbers of a reading."""
    score: Annotated[tuple[str, ...], Spelling("[TASK=]f1|exact|goal", repeated=True)] = ()
    """Score of answers in words, of all tasks or of one: F1 of words (f1; where none is said),
    exact match (exact), or whether all turns of a dialogue so far make the right state (goal)."""
    candidates: bool = False
    """Whether a label is sought among the candidates of its record alone, instead of among all."""
    after: Literal["each", "last"] | None = None
    """Weights that are scored: before the first task and after each, or after the last alone; None:
    each, but last where a reading adapts."""
    examples: Annotated[int | None, Field(gt=0), Spelling("N")] = None
    """Examples of each task's test, the first of a drawn order that is always the same; None: all.
    """

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The parsed readings of `memory`; for a tuned row the first of its choices."""
        return tuple(choices.readings[0] for choices in self.rows)

    @property
    def rows(self) -> tuple[Choices, ...]:
        """The readings from which each row is chosen."""
        return tuple(map(parse_choices, self.memory))

    def scores(self, tasks: Sequence[str]) -> dict[str, Score]:
        """The score of each task: its own setting, else the one for all tasks.

        Raises: UsageError for an unknown task, an unknown score, or two scores of one task.
        """
        score_of_task: dict[str, Score] = dict.fromkeys(tasks, "f1")
        parts = sorted(
            text.rpartition("=")[::2] for text in self.score
        )  # the score of all tasks comes first
        if len(dict(parts)) < len(parts):
            raise UsageError(
                "--score: two scores are given of the same; name one, and TASK=SCORE for others."
            )
        for task, score in parts:
            text = f"{task}={score}" if task else score
            if task and task not in score_of_task:
                raise UsageError(
                    f"--score {text}: there is no task {task!r}; {did_you_mean(task, tasks)}"
                )
            if score not in get_args(Score):
                raise UsageError(
                    f"--score {text}: there is no score {score!r}; {did_you_mean(score, get_args(Score))}"
                )
            score_of_task |= dict.fromkeys([task] if task else tasks, score)  # type: ignore[arg-type]
        return score_of_task

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
