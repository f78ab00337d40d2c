"""Breakdowns of a scored split, found before any token is scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.results.document_ends import end_tokens
from stages.evaluation.results.frequency import Frequencies, find_frequencies
from stages.evaluation.results.last_word import LastWords
from stages.evaluation.results.paragraphs import KnownText, known_texts, paragraphs_of, repeated_tokens
from stages.retrieval.rows import MemoryRow

ACCURACY_AT = (1, 8, 64, 1024)
"""Numbers of neighbours, beside all that are read, for which retrieval accuracy is reported."""


@dataclass(frozen=True)
class Accuracy:
    """Retrieval accuracy is that of memory row `row`, at each number of neighbours in `at`; empty: of none."""

    row: int
    at: tuple[int, ...]


class Repeated(NamedTuple):
    """A text that is known, and how many counted tokens stand in it."""

    text: KnownText
    tokens: int
    undivided: Literal["known", "scored"] | None = None
    """The side that is a single paragraph, where nothing was found: a part of it cannot be."""


@dataclass(frozen=True)
class Breakdown:
    """Which tokens of a split of T are reported apart.

    `last_words`: those that alone count, and the passages that they belong to; None: all count.
    `outside`: bool [T], in no paragraph that stands in a text that is known; None if none is.
    `repeated`: those texts, the model's and the datastores'.
    `unknown_id`: of `<unk>`; None: the tokenizer has none.
    `ends`: bool [T], that end documents; None where these have no `<eos>`, or last words alone count.
    `frequencies`: by how often their type stands in a text; None if that is not known.
    `accuracy`: the row, and the numbers of neighbours, of which retrieval accuracy is reported.
    """

    last_words: LastWords | None
    outside: np.ndarray | None
    repeated: list[Repeated]
    frequencies: Frequencies | None
    accuracy: Accuracy
    unknown_id: int | None = None
    ends: np.ndarray | None = None


def find_breakdown(
    read: Mapping[str, Artifact],
    split: str,
    counted_in: str,
    rows: Sequence[MemoryRow],
    last_words: Mapping[str, LastWords] | None,
) -> Breakdown:
    """Find the breakdowns of the scored split.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        counted_in: where the frequency of tokens is counted: `train` or `split`.
        rows: those of memory.
        last_words: of each split, the tokens that alone count.
    """
    counted = None if last_words is None else last_words[split]
    texts = known_texts(read)
    hashes = [text.hashes() for text in texts]
    inside = [repeated_tokens(read["tokens"], split, known) for known in hashes]
    own = paragraphs_of(read["tokens"], split)
    return Breakdown(
        counted,
        ~np.logical_or.reduce(inside) if inside else None,
        [
            Repeated(text, _count(tokens, counted), None if tokens.any() else _undivided(len(known), own))
            for text, tokens, known in zip(texts, inside, hashes, strict=True)
        ],
        find_frequencies(counted_in, read, split),
        find_accuracy(rows),
        read["tokens"].metrics.get("unk_id"),
        end_tokens(read["tokens"], split) if counted is None else None,
    )


def _undivided(known: int, scored: int) -> Literal["known", "scored"] | None:
    """The side, of so many paragraphs each, that is a single one."""
    if known == 1:
        return "known"
    return "scored" if scored == 1 else None


def _count(tokens: np.ndarray, counted: LastWords | None) -> int:
    """How many of some tokens, bool [T], count."""
    return int(tokens.sum() if counted is None else tokens[counted.scored(0, len(tokens))].sum())


def find_accuracy(rows: Sequence[MemoryRow]) -> Accuracy:
    """The first row whose first reading looks into a datastore, and the numbers of neighbours reported for it.

    None of a row that leaves searches out: where none is made no neighbour can be right.
    """
    for number, row in enumerate(rows):
        k = row.sources[0].needs.neighbors
        if k and row.searched == 1:
            return Accuracy(number, tuple(sorted({*(n for n in ACCURACY_AT if n < k), k})))
    return Accuracy(0, ())
