"""Form of a split of each kind of examples: figures and arrays that it adds to those of text. Free of torch."""

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
    """Figures that a kind of examples asks of a split, and the arrays that it reads besides `READ`.

    Arrays whose names end in `ids` are the large ones: training maps them, and loads all others.
    """

    figures: type[Figures] = Figures
    arrays: Mapping[str, ArrayForm] = field(default_factory=dict)
    source: bool = False
    """Whether examples are read with a source, which a model must then know to read."""
    tasks: bool = False
    """Whether examples are documents of tasks."""

    @property
    def read(self) -> tuple[str, ...]:
        """Names of all arrays that the kind reads."""
        return (*READ, *self.arrays)


def token_ids(count: str) -> ArrayForm:
    """Ids of tokens, as many as the figure `count` says."""
    return lambda figures, types: Expected(
        (figures[count],), ("uint16", "uint32"), between(0, types, "ids of the vocabulary")
    )


def token_offsets(count: str) -> ArrayForm:
    """The first token of each document, and the end, of as many tokens as the figure `count` says."""
    return lambda figures, _: Expected((figures["documents"] + 1,), ("int64",), offsets(figures[count]))


class PairFigures(Figures):
    """Figures of a split of pairs, beside those of its target side."""

    source_tokens: Positive
    longest: Positive
    """Tokens of the longest target sentence, its end included."""
    longest_source: Positive


TEXT = SplitForm()
"""Form of a split that is text alone."""
PAIRS = SplitForm(
    PairFigures,
    {"source_ids": token_ids("source_tokens"), "source_offsets": token_offsets("source_tokens")},
    source=True,
)
"""Form of a split of pairs: documents are target sentences, and document i is read with sentence i of the source."""


MOST = 2**31 - 1


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
    """A whole number for each document."""
    return lambda figures, _: Expected((figures["documents"],), ("int32",), between(lowest, MOST, what))


def _tasks(figures: Mapping[str, Any], _: int) -> Expected:
    return Expected((figures["documents"],), ("int32",), between(0, len(figures["task_documents"]), "tasks"))


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
"""Form of a split of questions: each, and the first of its answers, ends with `<eos>`; a span is where the answer is
among the tokens of its text, [start, stop), -1 where answers are words."""


def candidates_file(split: str) -> str:
    """Where in a tokens artifact the candidates of a split are: a line for each document, JSON.

    It is a list of numbers of labels; null: all of them.
    """
    return f"candidates/{split}.jsonl"


def answers_file(split: str) -> str:
    """Where in a tokens artifact the accepted answers of a split are: a line for each document, JSON."""
    return f"answers/{split}.jsonl"
