"""Breakdowns of a scored split, computed before any token is scored: known texts, ends of
documents, frequency.

Tokens are grouped by the frequency of their type in a text, to show which gain from a memory:
frequent or rare ones. Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), Table 14, with one more
bucket for types of frequency 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.places import LastWords, counted_tokens
from stages.evaluation.figures.texts import (
    KnownText,
    Matched,
    find_matched,
    known_texts,
    repeated_tokens,
)
from stages.lineage.corpus import token_text
from stages.text.tokens import open_split

if TYPE_CHECKING:
    from stages.retrieval.rows import MemoryRow

BOUNDS = (10_000, 1_000, 100, 10, 0)
"""Types in bucket b occur more than BOUNDS[b] and at most BOUNDS[b - 1] times; types in the last
bucket never do.
"""
IDS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Frequencies:
    """The bucket of each type of a vocabulary, int64 [V], and the text in which types were counted."""

    bucket_of: np.ndarray
    counted_in: str
    """`train`, or `split` for the scored split."""
    corpus: str
    """Reference of the tokens whose split was counted."""

    def tokens(self, targets: np.ndarray) -> list[int]:
        """Number of tokens, among `targets` int [n], in each bucket."""
        return np.bincount(self.bucket_of[targets], minlength=len(BOUNDS) + 1).tolist()

    def sums(self, targets: np.ndarray, values: np.ndarray) -> list[float]:
        """Sum over each bucket, in float64, of one value for each token [n]."""
        return np.bincount(
            self.bucket_of[targets], values.astype(np.float64), len(BOUNDS) + 1
        ).tolist()


def find_frequencies(
    counted_in: str, read: Mapping[str, Artifact], split: str
) -> Frequencies | None:
    """Count the types of the vocabulary, in one pass over a split.

    Args:
        counted_in: `train`: the training split of the model's own tokens, or, if they have none, of
            the scored tokens; `split`: the scored split.
        read: artifacts that an evaluation reads, by role.
        split: the scored split.
    Returns: None if there is no training split.
    """
    corpora = [read["tokens"]]
    counted = split
    if counted_in == "train":
        corpora = [read["model"].input("tokens"), read["tokens"]]
        counted = "train"
    for corpus in corpora:
        if counted in corpus.metrics["splits"]:
            ids: Any = corpus.zarr("tokens.zarr")[f"{counted}/ids"]
            counts = type_counts(ids, corpus.metrics["vocabulary_size"])
            return Frequencies(bucket_of(counts), counted_in, corpus.reference)
    return None


def type_counts(ids: Any, vocabulary: int) -> np.ndarray:
    """Number of occurrences of each type among ids [T], int64 [V]; a few million ids are in memory
    at a time.

    >>> type_counts(np.array([2, 0, 2]), 4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, ids.shape[0], IDS_AT_ONCE):
        counts += np.bincount(ids[start : start + IDS_AT_ONCE], minlength=vocabulary)
    return counts


def bucket_of(counts: np.ndarray) -> np.ndarray:
    """The bucket of each type, int64 [V], from its number of occurrences; bucket 0 has the most
    frequent types.

    >>> bucket_of(np.array([20_000, 500, 0])).tolist()
    [0, 2, 5]
    """
    return len(BOUNDS) - np.searchsorted(BOUNDS[::-1], counts, side="left")


def buckets(tokens: Sequence[int]) -> list[tuple[int, dict[str, int | None]]]:
    """The buckets that are not empty: number, then bounds (None: unbounded) and tokens, in the form
    of a report.
    """
    bounds = zip((*BOUNDS, None), (None, *BOUNDS), tokens, strict=True)
    return [
        (number, {"more_than": more_than, "at_most": at_most, "tokens": count})
        for number, (more_than, at_most, count) in enumerate(bounds)
        if count
    ]


def chance_accuracy(stored: np.ndarray, scored: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """Share of tokens that are among the values of K rows drawn at random, by K.

    A token of type v is among them with probability 1 - (1 - p_v)^K, where p_v is the share of v in
    all rows.

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
"""Numbers of neighbours for which retrieval accuracy is reported, besides the number that is read.
"""


@dataclass(frozen=True)
class Breakdown:
    """Groups of a split's T tokens that are reported separately.

    `last_words`: the only tokens that count, and the passages that they belong to; None: all count.
    `parts`: bool [T] by name: `outside` (in no paragraph of a known text), `new` (in no long match
    with one), `ends` (of documents). Parts that are not known are left out, and `ends` if only last
    words count.
    `unknown_id`: id of `<unk>`, whose tokens are the part `unknown`; None: the tokenizer has none.
    `repeated`: known texts, of the model and of the datastores, and how many counted tokens are in
    their paragraphs. `matched`: tokens in long matches with known texts.
    `frequencies`: buckets by the frequency of a token's type; None if not known.
    `accuracy`: the row, and the numbers of neighbours, for which retrieval accuracy is reported.
    """

    last_words: LastWords | None
    parts: Mapping[str, np.ndarray]
    repeated: list[tuple[KnownText, int]]
    frequencies: Frequencies | None
    accuracy: tuple[int, tuple[int, ...]]
    unknown_id: int | None = None
    matched: Matched | None = None

    @property
    def outside(self) -> np.ndarray | None:
        """Whether each token is in no paragraph that was read before, bool [T]; None if not known."""
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
        read: artifacts by role, as in `stages.lineage.evaluation`.
        counted_in: text in which the frequency of tokens is counted: `train` or `split`.
        rows: the evaluated rows of memory.
        last_words: by split, the only tokens that count; None: all count.
    """
    tokens = read["tokens"]
    counted = None if last_words is None else last_words[split]
    texts = known_texts(read)
    repeated = repeated_tokens(tokens, split, texts)
    matched = find_matched(read, split)

    parts = {}
    if repeated:
        parts["outside"] = ~np.logical_or.reduce(repeated)
    if matched is not None:
        parts["new"] = matched.new
    if counted is None:
        ends = end_tokens(tokens, split)
        if ends is not None:
            parts["ends"] = ends

    repeated_counts = []
    for text, is_repeated in zip(texts, repeated, strict=True):
        is_counted = counted_tokens(counted, 0, len(is_repeated))
        repeated_counts.append((text, int(is_repeated[is_counted].sum())))
    return Breakdown(
        counted,
        parts,
        repeated_counts,
        find_frequencies(counted_in, read, split),
        find_accuracy(rows),
        tokens.metrics.get("unk_id"),
        matched,
    )


def find_accuracy(rows: "Sequence[MemoryRow]") -> tuple[int, tuple[int, ...]]:
    """The first row whose first reading searches a datastore, and the numbers of neighbours
    reported for it.

    Rows that leave out searches are passed over: without a search no neighbour can be right.
    """
    for number, row in enumerate(rows):
        k = row.sources[0].needs.neighbors
        if k and row.searched == 1:
            return number, tuple(sorted({*(n for n in ACCURACY_AT if n < k), k}))
    return 0, ()


def end_tokens(tokens: Artifact, split: str) -> np.ndarray | None:
    """Whether each of a split's T tokens ends a document, bool [T]; None if documents have no
    `<eos>` of their own.

    A token of white space with a line break before `<eos>` counts, too. If lines are documents,
    each has such a token, and `<eos>` is certain after it.
    """
    if tokens.metrics["eos_after"] != "document":
        return None
    opened = open_split(tokens.zarr("tokens.zarr"), split)
    ids = np.asarray(opened.ids[:])
    offsets = np.asarray(opened.doc_offsets[:])
    last = offsets[1:] - 1
    # the last document of a split may be cut, and then has no end
    last = last[ids[last] == tokens.metrics["eos_id"]]
    before = (
        last[~np.isin(last, offsets[:-1])] - 1
    )  # a document of <eos> alone has no token before it
    text = token_text(tokens)
    labels = {id: text.label(id) for id in np.unique(ids[before]).tolist()}
    breaks = [id for id, label in labels.items() if "\n" in label and label.isspace()]
    ends = np.zeros(len(ids), bool)
    ends[last] = True
    ends[before[np.isin(ids[before], breaks)]] = True
    return ends
