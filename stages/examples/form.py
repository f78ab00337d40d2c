"""Form of a split for each kind of examples: its figures and arrays beyond those of text. Free of
torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.artifacts.schema import Count, Expected, Figures, Positive, between, offsets

READ = ("ids", "doc_offsets")
"""Arrays of text that every kind of examples reads."""

ArrayForm = Callable[[Mapping[str, Any], int], Expected]
"""(figures of a split, types of the vocabulary) -> form of an array of this split."""


@dataclass(frozen=True)
class SplitForm:
    """Figures that a kind of examples requires of a split, and the arrays that it reads besides
    `READ`.

    Arrays whose names end in `ids` are large: training memory-maps them, and loads all others.
    """

    figures: type[Figures] = Figures
    arrays: Mapping[str, ArrayForm] = field(default_factory=dict)
    source: bool = False
    """Whether examples have a source, which the model must be able to read."""
    tasks: bool = False
    """Whether examples are documents of tasks."""

    @property
    def read(self) -> tuple[str, ...]:
        """Names of all arrays that the kind reads."""
        return (*READ, *self.arrays)


def token_ids(count: str) -> ArrayForm:
    """Ids of tokens; the figure `count` names their number."""
    return lambda figures, types: Expected(
        (figures[count],), ("uint16", "uint32"), between(0, types, "ids of the vocabulary")
    )


def token_offsets(count: str) -> ArrayForm:
    """The first token of each document, and the end; the figure `count` names the number of tokens."""
    return lambda figures, _: Expected(
        (figures["documents"] + 1,), ("int64",), offsets(figures[count])
    )


class PairFigures(Figures):
    """Figures of a split of pairs, besides those of its target side."""

    source_tokens: Positive
    longest: Positive
    """Tokens of the longest target sentence, its end included."""
    longest_source: Positive


TEXT = SplitForm()
"""Form of a split of plain text."""
PAIRS = SplitForm(
    PairFigures,
    {"source_ids": token_ids("source_tokens"), "source_offsets": token_offsets("source_tokens")},
    source=True,
)
"""Form of a split of pairs: documents are target sentences, and document i is read with sentence i
of the source.
"""


MAX_TOKENS = 2**31 - 1


class DocumentFigures(Figures):
    """Metrics of a split of documents."""

    task_documents: list[Count]
    """Documents of each task."""


class QuestionFigures(DocumentFigures):
    """Figures of a split of questions."""

    question_tokens: Positive
    answer_tokens: Positive
    longest_answer: Positive
    """Tokens of the longest answer, without its `<eos>`."""


def _each(lowest: int, what: str) -> ArrayForm:
    """An integer of at least `lowest` for each document."""
    return lambda figures, _: Expected(
        (figures["documents"],), ("int32",), between(lowest, MAX_TOKENS, what)
    )


def _tasks(figures: Mapping[str, Any], _: int) -> Expected:
    return Expected(
        (figures["documents"],), ("int32",), between(0, len(figures["task_documents"]), "tasks")
    )


LABELLED = SplitForm(DocumentFigures, {"labels": _each(-1, "labels"), "tasks": _tasks}, tasks=True)
"""Form of a split of documents with labels, -1 where there are none."""
QUESTIONS = SplitForm(
    QuestionFigures,
    {
        "tasks": _tasks,
        "question_ids": token_ids("question_tokens"),
        "question_offsets": token_offsets("question_tokens"),
        "answer_ids": token_ids("answer_tokens"),
        "answer_offsets": token_offsets("answer_tokens"),
        "span_starts": _each(-1, "tokens"),
        "span_stops": _each(-1, "tokens"),
    },
    tasks=True,
)
"""Form of a split of questions. Each question, and its first answer, ends with `<eos>`. A span is
the range [start, stop) of the answer in the tokens of its text; -1 if answers are free text."""


def candidates_file(split: str) -> str:
    """Path, within a tokens artifact, of the candidates of a split: a line of JSON for each
    document.

    A line is a list of numbers of labels; null: all labels.
    """
    return f"candidates/{split}.jsonl"


def answers_file(split: str) -> str:
    """Path, within a tokens artifact, of the accepted answers of a split: a line of JSON for each
    document.
    """
    return f"answers/{split}.jsonl"
