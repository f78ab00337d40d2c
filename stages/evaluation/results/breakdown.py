"""What is reported of a scored split beside the sums over its tokens, found before any is scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.results.frequency import Frequencies, find_frequencies
from stages.evaluation.results.last_word import LastWords
from stages.evaluation.results.paragraphs import KnownText, known_texts, repeated_tokens
from stages.retrieval.rows import MemoryRow

ACCURACY_AT = (1, 8, 64, 1024)
"""Numbers of neighbours, beside all that are read, for which retrieval accuracy is reported."""


@dataclass(frozen=True)
class Accuracy:
    """Retrieval accuracy is that of memory row `row`, at each number of neighbours in `at`; empty: of none."""

    row: int
    at: tuple[int, ...]


@dataclass(frozen=True)
class Breakdown:
    """Which tokens of a split of T are reported apart.

    `last_words`: those that alone count, and the passages that they belong to; None: all count.
    `outside`: bool [T], in no paragraph that stands in a text that is known; None if none is.
    `repeated`: those texts, the model's and the datastores', and how many counted tokens stand in each.
    `unknown_id`: of `<unk>`; None: the tokenizer has none.
    `frequencies`: by how often their type stands in a text; None if that is not known.
    `accuracy`: the row, and the numbers of neighbours, of which retrieval accuracy is reported.
    """

    last_words: LastWords | None
    outside: np.ndarray | None
    repeated: list[tuple[KnownText, int]]
    frequencies: Frequencies | None
    accuracy: Accuracy
    unknown_id: int | None = None


def find_breakdown(
    read: Mapping[str, Artifact],
    split: str,
    counted_in: str,
    rows: Sequence[MemoryRow],
    last_words: Mapping[str, LastWords] | None,
) -> Breakdown:
    """What can be reported of the scored split.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        counted_in: where the frequency of tokens is counted: `train` or `split`.
        rows: those of the evaluator.
        last_words: of each split, the tokens that alone count.
    """
    counted = None if last_words is None else last_words[split]
    texts = known_texts(read)
    inside = [repeated_tokens(read["tokens"], split, text.hashes()) for text in texts]
    return Breakdown(
        counted,
        ~np.logical_or.reduce(inside) if inside else None,
        [(text, _count(tokens, counted)) for text, tokens in zip(texts, inside, strict=True)],
        find_frequencies(counted_in, read, split),
        find_accuracy(rows),
        read["tokens"].metrics.get("unk_id"),
    )


def _count(tokens: np.ndarray, counted: LastWords | None) -> int:
    """How many of some tokens, bool [T], count."""
    return int(tokens.sum() if counted is None else tokens[counted.scored(0, len(tokens))].sum())


def find_accuracy(rows: Sequence[MemoryRow]) -> Accuracy:
    """The first row whose first reading looks into a datastore, and the numbers of neighbours reported for it."""
    for number, row in enumerate(rows):
        k = row.sources[0].needs.neighbors
        if k:
            return Accuracy(number, tuple(sorted({*(n for n in ACCURACY_AT if n < k), k})))
    return Accuracy(0, ())
