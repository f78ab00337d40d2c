"""Settings of evaluate-tasks, and the readings of memory. Free of torch."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field, ValidationError, field_validator

from stages.config import Settings, Spelling, StageConfig
from stages.errors import UsageError, did_you_mean

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
MOST_STEPS = 10**6
"""Maximum number of steps of an adaptation."""
MOST_RATE = 1e9
"""A number that float32 can hold even after a product: larger ones overflow to infinity, or raise
an error.
"""
Part = Literal["all", "head"]


class Reading(Settings):
    """A row of the matrix: a way in which the model reads memory."""

    reads_keys: ClassVar[bool] = False
    """Whether it searches for the nearest documents."""
    adapts: ClassVar[bool] = False
    """Whether it adapts weights for each example, which takes long."""
    name: str

    @property
    def spelled(self) -> str:
        """The reading as a user would type it: `mbpa:k=8`; settings with their defaults are left
        out.
        """
        given = [
            f"{key}={_spelled(getattr(self, key))}"
            for key, field in type(self).model_fields.items()
            if key != "name" and getattr(self, key) != field.default
        ]
        return ":".join([self.name, *([",".join(given)] if given else [])])


def _spelled(value: float | str) -> str:
    """The shortest exact spelling of a number; a word as it is."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


class NoReading(Reading):
    """The model alone."""

    name: Literal["none"] = "none"


class Neighbors(Reading):
    """p(y) = λ p_mem(y) + (1 - λ) p_model(y); p_mem by exp(-d² / τ) of the k nearest documents with
    the label y.
    """

    reads_keys: ClassVar[bool] = True

    name: Literal["episodic"] = "episodic"
    k: Count = 32
    temperature: Positive = 10.0
    """τ, of squared Euclidean distances."""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """λ."""


class Adaptation(Reading):
    """L steps of gradient descent on documents of memory, for each example from the model's own
    weights.
    """

    adapts: ClassVar[bool] = True

    k: Count = 32
    """Documents, K."""
    steps: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 30
    """L, steps for each example; coarse takes them once for all."""
    lr: Annotated[float, Field(gt=0, le=MOST_RATE)] = 1e-3
    """η, their learning rate."""
    anchor: Annotated[float, Field(ge=0, le=MOST_RATE)] = 1e-3
    """κ, of the squared distance from the weights before."""


class Mbpa(Adaptation):
    """Adapts to the k nearest documents."""

    reads_keys: ClassVar[bool] = True

    name: Literal["mbpa"] = "mbpa"
    weight: Literal["equal", "distance"] = "equal"
    """Weights of the documents: all alike, as of MbPA++, or by 1 / (ε + d²), as of MbPA."""


class RandomAdaptation(Adaptation):
    """Adapts to k documents drawn at random: the control of `mbpa`."""

    name: Literal["random"] = "random"


class Coarse(Adaptation):
    """Adapts once for all examples, each step to k freshly drawn documents, as in Meta-MbPA and
    OML-ER.
    """

    adapts: ClassVar[bool] = False

    name: Literal["coarse"] = "coarse"
    part: Part = "all"
    """Weights that adapt: all, or the head alone, as of OML-ER."""


READINGS: Mapping[str, type[Reading]] = {
    "none": NoReading,
    "mbpa": Mbpa,
    "random": RandomAdaptation,
    "coarse": Coarse,
    "episodic": Neighbors,
}


TUNE = "tune"
GRIDS: Mapping[str, tuple[float, ...]] = {
    "lr": (0.001, 0.005, 0.02, 0.1),
    "steps": (5, 15, 30),
    "weight": (0.1, 0.25, 0.5, 0.75),
    "temperature": (0.1, 1.0, 10.0, 100.0),
}
"""Values that `tune` tries."""


MOST_CHOICES = 1000
"""Maximum number of readings to try for a row: each answers the whole tune split of the first task.
"""


class Choices(NamedTuple):
    """The readings from which a row is chosen; they differ only in numbers. Usually there is one."""

    spelled: str
    readings: tuple[Reading, ...]


def parse_choices(text: str) -> Choices:
    """Parse a row as typed. Raises: UsageError that names the legal values.

    >>> [reading.spelled for reading in parse_choices("mbpa:k=8,lr=0.005/0.02").readings]
    ['mbpa:k=8,lr=0.005', 'mbpa:k=8,lr=0.02']
    """
    name, _, settings = text.partition(":")
    given = [part.partition("=")[::2] for part in settings.split(",") if part]
    lists = {key: _listed(text, key, value) for key, value in given}
    if len(lists) < len(given):
        raise UsageError(f"--memory {text}: a setting is there twice.")
    if (count := prod(map(len, lists.values()))) > MOST_CHOICES:
        raise UsageError(
            f"--memory: {name} stands for {count:,} readings; at most {MOST_CHOICES:,} are tried: name fewer."
        )
    typed = (zip(lists, values, strict=True) for values in product(*lists.values()))
    found = tuple(
        parse_reading(":".join([name, ",".join("=".join(pair) for pair in pairs)]))
        for pairs in typed
    )
    if len(set(found)) < len(found):
        raise UsageError(f"--memory {text}: a value is there twice.")
    return Choices(found[0].spelled if len(found) == 1 else text, found)


def _listed(text: str, key: str, value: str) -> list[str]:
    """The values of a setting to try."""
    if value != TUNE:
        return value.split("/")
    if key not in GRIDS:
        raise UsageError(
            f"--memory {text}: {', '.join(GRIDS)} can be tuned; of {key} name the values, as {key}=8/32."
        )
    return [f"{one:g}" for one in GRIDS[key]]


def parse_reading(text: str) -> Reading:
    """Parse a reading without settings left to choose. Raises: UsageError that names the legal
    values.

    >>> parse_reading("mbpa:k=8,lr=0.005").spelled
    'mbpa:k=8,lr=0.005'
    """
    name, _, settings = text.partition(":")
    if name not in READINGS:
        raise UsageError(
            f"--memory: there is no reading {name!r} of tasks; {did_you_mean(name, READINGS)}"
        )
    pairs = dict(part.partition("=")[::2] for part in settings.split(",") if part)
    legal = [key for key in READINGS[name].model_fields if key != "name"]
    for key in pairs:
        if key not in legal:
            raise UsageError(
                f"--memory {text}: {name} has no {key!r}; it has: {', '.join(legal) or 'nothing'}."
            )
    try:
        return READINGS[name].model_validate(pairs)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise UsageError(
            f"--memory {text}: {where}{first['msg'].removeprefix('Value error, ')}."
        ) from None


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
    nearest). Keys are k, steps, lr, anchor, of mbpa weight, of coarse part; of episodic k,
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
        found: dict[str, Score] = dict.fromkeys(tasks, "f1")
        said = sorted(
            text.rpartition("=")[::2] for text in self.score
        )  # the score of all tasks comes first
        if len(dict(said)) < len(said):
            raise UsageError(
                "--score: two scores are given of the same; name one, and TASK=SCORE for others."
            )
        for task, score in said:
            text = f"{task}={score}" if task else score
            if task and task not in found:
                raise UsageError(
                    f"--score {text}: there is no task {task!r}; {did_you_mean(task, tasks)}"
                )
            if score not in get_args(Score):
                raise UsageError(
                    f"--score {text}: there is no score {score!r}; {did_you_mean(score, get_args(Score))}"
                )
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
