"""Heads, with which a model scores a whole example instead of its next token: registry and
settings, free of torch.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.config import Settings
from stages.registry import Part, Registry

HERE = "stages.models"
HEADS = Registry(
    "head",
    {
        "classifier": Part.within(HERE, "head_settings:ClassifierSettings", "heads:Classifier"),
        "language": Part.within(HERE, "head_settings:LanguageSettings", "heads:Language"),
        "matcher": Part.within(HERE, "head_settings:MatcherSettings", "heads:Matcher"),
        "span": Part.within(HERE, "head_settings:SpanSettings", "heads:SpanHead"),
        "modulated": Part.within(HERE, "head_settings:ModulatedSettings", "heads:Modulated"),
    },
)
Pool = Literal["mean", "last", "first"]
"""Pooling of the hidden states of an example to one vector: their mean, the last, or the first."""


class HeadSettings(Settings):
    """Settings of a registered head, which the field `name` selects."""

    reads_frozen: ClassVar[bool] = False
    """Whether the model has a frozen copy of itself, which the head reads."""
    writes_answers: ClassVar[bool] = False
    """Whether an answer is written, in tokens of the vocabulary."""
    marks_spans: ClassVar[bool] = False
    """Whether an answer is a span of the text."""


class ClassifierSettings(HeadSettings):
    """A softmax over labels; all labels are known in advance."""

    name: Literal["classifier"] = "classifier"
    labels: Annotated[int, Field(gt=0, lt=2**31)]
    """Labels of all tasks, |Y|."""
    pool: Pool = "mean"


class MatcherSettings(ClassifierSettings):
    """Inner products with a vector for each label seen so far; at test these are prototypes."""

    name: Literal["matcher"] = "matcher"  # type: ignore[assignment]
    names: tuple[tuple[int, ...], ...] = ()
    """Tokens of the name of each label, at which its vector begins; none: it begins at random."""


class ModulatedSettings(ClassifierSettings):
    """A classifier whose input is gated by the output of a frozen copy of the encoder."""

    reads_frozen: ClassVar[bool] = True

    name: Literal["modulated"] = "modulated"  # type: ignore[assignment]


class LanguageSettings(HeadSettings):
    """Answers in tokens of the vocabulary: a label is a few tokens after `<ans>`."""

    writes_answers: ClassVar[bool] = True

    name: Literal["language"] = "language"
    answers: tuple[tuple[int, ...], ...]
    """Tokens of each label; none: the text itself is scored."""
    longest: Annotated[int, Field(gt=0)] | None = None
    """Tokens of the longest answer, where each document has its own; None: there are those of
    labels alone.
    """
    first: Annotated[int, Field(gt=0)]
    """Id of `<ans>`; those of `<gen>` and of one `<task>` a task follow. They lie behind the tokens
    of the text.
    """
    learns_rows: bool = False
    """Whether the rows of these tokens learn where the rest of the vocabulary stays as it is
    (LoRA).
    """

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest answer; 0: the model scores text, and answers nothing."""
        return self.longest or max(map(len, self.answers), default=0)


class SpanSettings(HeadSettings):
    """Two softmaxes over the positions of the text, one for the start of the answer, and one for
    its end.
    """

    marks_spans: ClassVar[bool] = True

    name: Literal["span"] = "span"
