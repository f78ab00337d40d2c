"""Breakdowns of a scored split, found before any token is scored: texts read before, ends of documents, frequency.

Tokens are grouped by how often their type stands in a text: who gains from a memory, the frequent or the rare.
Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), Table 14, with a bucket more for types that are not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.places import LastWords
from stages.evaluation.figures.texts import KnownText, Matched, find_matched, known_texts, repeated_tokens
from stages.lineage.corpus import token_text
from stages.text.tokens import open_split

if TYPE_CHECKING:
    from stages.retrieval.rows import MemoryRow

BOUNDS = (10_000, 1_000, 100, 10, 0)
"""The types of bucket b stand more than BOUNDS[b] times, and at most BOUNDS[b - 1]; those of a last one never."""
IDS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Frequencies:
    """The bucket of each type of a vocabulary, int64 [V], and what was counted for it."""

    bucket_of: np.ndarray
    counted_in: str
    """`train` or `split`, the scored one."""
    corpus: str
    """Reference of the tokens whose split was counted."""

    def tokens(self, targets: np.ndarray) -> list[int]:
        """How many of some tokens, int [n], are in each bucket."""
        return np.bincount(self.bucket_of[targets], minlength=len(BOUNDS) + 1).tolist()

    def sums(self, targets: np.ndarray, values: np.ndarray) -> list[float]:
        """The sum of a value of each token, [n], over each bucket, in float64."""
        return np.bincount(self.bucket_of[targets], values.astype(np.float64), len(BOUNDS) + 1).tolist()


def find_frequencies(counted_in: str, read: Mapping[str, Artifact], split: str) -> Frequencies | None:
    """Count the types of the vocabulary, in one pass over a split.

    Args:
        counted_in: `train`: in the training split of the tokens that the model learned, or, if they have
            none, of the scored ones; `split`: in the scored split.
        read: what an evaluation reads, by role.
        split: the scored split.
    Returns: None if there is no training split.
    """
    if counted_in == "split":
        return _frequencies(read["tokens"], split, counted_in)
    for corpus in (read["model"].input("tokens"), read["tokens"]):
        if "train" in corpus.metrics["splits"]:
            return _frequencies(corpus, "train", counted_in)
    return None


def _frequencies(corpus: Artifact, split: str, counted_in: str) -> Frequencies:
    group: Any = corpus.zarr("tokens.zarr")
    counts = type_counts(group[f"{split}/ids"], corpus.metrics["vocabulary_size"])
    return Frequencies(bucket_of(counts), counted_in, corpus.reference)


def type_counts(ids: Any, vocabulary: int) -> np.ndarray:
    """How often each type stands among ids [T], int64 [V]; a few million ids are in memory at a time.

    >>> type_counts(np.array([2, 0, 2]), 4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, ids.shape[0], IDS_AT_ONCE):
        counts += np.bincount(ids[start : start + IDS_AT_ONCE], minlength=vocabulary)
    return counts


def bucket_of(counts: np.ndarray) -> np.ndarray:
    """The bucket of a type that stands so often, int64 [V]: 0 holds the most frequent.

    >>> bucket_of(np.array([20_000, 500, 0])).tolist()
    [0, 2, 5]
    """
    return len(BOUNDS) - np.searchsorted(BOUNDS[::-1], counts, side="left")


def buckets(tokens: Sequence[int]) -> list[tuple[int, dict[str, int | None]]]:
    """The buckets that hold tokens: number, then bounds (None: there is none) and tokens, as a report has them."""
    bounds = zip((*BOUNDS, None), (None, *BOUNDS), tokens, strict=True)
    return [
        (number, {"more_than": more_than, "at_most": at_most, "tokens": count})
        for number, (more_than, at_most, count) in enumerate(bounds)
        if count
    ]


def chance_accuracy(stored: np.ndarray, scored: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """Share of tokens that stand among the values of K rows drawn at random, by K.

    One of type v stands among them with probability 1 - (1 - p_v)^K, where p_v is the share of v in all rows.

    Args:
        stored: rows of each type, int64 [V].
        scored: tokens of each type, int64 [V].
        at: numbers of rows, K.

    >>> chance_accuracy(np.array([3, 1]), np.array([1, 1]), at=(1, 2))
    {'1': 0.5, '2': 0.6875}
    """
    never = 1 - stored / stored.sum()
    return {str(k): float(np.average(1 - never**k, weights=scored)) for k in at}


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


@dataclass(frozen=True)
class Breakdown:
    """Which tokens of a split of T are reported apart.

    `last_words`: those that alone count, and the passages that they belong to; None: all count.
    `parts`: bool [T] by name: `outside` (in no paragraph of a text that is known), `new` (in no long match with one),
    `ends` (of documents); those that are not known are left out, and ends where last words alone count.
    `unknown_id`: of `<unk>`, whose tokens are the part `unknown`; None: the tokenizer has none.
    `repeated`: the texts that are known, the model's and the datastores'. `matched`: what matches were found of.
    `frequencies`: by how often their type stands in a text; None if that is not known.
    `accuracy`: the row, and the numbers of neighbours, of which retrieval accuracy is reported.
    """

    last_words: LastWords | None
    parts: Mapping[str, np.ndarray]
    repeated: list[Repeated]
    frequencies: Frequencies | None
    accuracy: Accuracy
    unknown_id: int | None = None
    matched: Matched | None = None

    @property
    def outside(self) -> np.ndarray | None:
        """Tokens in no paragraph that was read before, bool [T]."""
        return self.parts.get("outside")


def find_breakdown(
    read: Mapping[str, Artifact],
    split: str,
    counted_in: str,
    rows: "Sequence[MemoryRow]",
    last_words: Mapping[str, LastWords] | None,
) -> Breakdown:
    """Find the breakdowns of the scored split.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        counted_in: where the frequency of tokens is counted: `train` or `split`.
        rows: those of the evaluator.
        last_words: of each split, the tokens that alone count.
    """
    counted = None if last_words is None else last_words[split]
    texts = known_texts(read)
    inside = [repeated_tokens(read["tokens"], split, text.hashes()) for text in texts]
    matched = find_matched(read, split)
    parts = {
        "outside": ~np.logical_or.reduce(inside) if inside else None,
        "new": None if matched is None else matched.new,
        "ends": end_tokens(read["tokens"], split) if counted is None else None,
    }
    return Breakdown(
        counted,
        {name: part for name, part in parts.items() if part is not None},
        [Repeated(text, _count(tokens, counted)) for text, tokens in zip(texts, inside, strict=True)],
        find_frequencies(counted_in, read, split),
        find_accuracy(rows),
        read["tokens"].metrics.get("unk_id"),
        matched,
    )


def _count(tokens: np.ndarray, counted: LastWords | None) -> int:
    """How many of some tokens, bool [T], count."""
    return int(tokens.sum() if counted is None else tokens[counted.scored(0, len(tokens))].sum())


def find_accuracy(rows: "Sequence[MemoryRow]") -> Accuracy:
    """The first row whose first reading looks into a datastore, and the numbers of neighbours reported for it.

    None of a row that leaves searches out: where none is made no neighbour can be right.
    """
    for number, row in enumerate(rows):
        k = row.sources[0].needs.neighbors
        if k and row.searched == 1:
            return Accuracy(number, tuple(sorted({*(n for n in ACCURACY_AT if n < k), k})))
    return Accuracy(0, ())


def end_tokens(tokens: Artifact, split: str) -> np.ndarray | None:
    """Whether each of a split's T tokens ends a document, bool [T]; None where documents have no `<eos>` of their own.

    A token that is white space with a line break counts where `<eos>` follows it: where lines are documents there is
    one in each, and `<eos>` is certain behind it.
    """
    if tokens.metrics["eos_after"] != "document":
        return None
    opened = open_split(tokens.zarr("tokens.zarr"), split)
    ids, offsets = np.asarray(opened.ids[:]), np.asarray(opened.doc_offsets[:])
    last = offsets[1:] - 1
    # the last document of a split may be cut, and then has no end
    last = last[ids[last] == tokens.metrics["eos_id"]]
    before = last[~np.isin(last, offsets[:-1])] - 1  # a document of <eos> alone has none
    text = token_text(tokens)
    labels = {id: text.label(id) for id in np.unique(ids[before]).tolist()}
    breaks = [id for id, label in labels.items() if "\n" in label and label.isspace()]
    ends = np.zeros(len(ids), bool)
    ends[last] = True
    ends[before[np.isin(ids[before], breaks)]] = True
    return ends
