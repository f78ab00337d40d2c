"""Tokens grouped by how often their type stands in a text: who gains from a memory, the frequent or the rare.

Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), Table 14, with a bucket more for types that are not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact

BOUNDS = (10_000, 1_000, 100, 10, 0)
"""The types of bucket b stand more than BOUNDS[b] times, and at most BOUNDS[b - 1]; those of a last one never."""
IDS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Frequencies:
    """In which bucket each type of a vocabulary is, int64 [V], and what was counted for it."""

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
        return _count(read["tokens"], split, counted_in)
    for corpus in (read["model"].input("tokens"), read["tokens"]):
        if "train" in corpus.metrics["splits"]:
            return _count(corpus, "train", counted_in)
    return None


def _count(corpus: Artifact, split: str, counted_in: str) -> Frequencies:
    group: Any = corpus.zarr("tokens.zarr")
    counts = type_counts(group[f"{split}/ids"], corpus.metrics["vocabulary_size"])
    return Frequencies(bucket_of(counts), counted_in, corpus.reference)


def type_counts(ids: Any, vocabulary: int) -> np.ndarray:
    """How often each type stands among ids [T], int64 [V]; a few million ids are in memory at a time."""
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, ids.shape[0], IDS_AT_ONCE):
        counts += np.bincount(ids[start : start + IDS_AT_ONCE], minlength=vocabulary)
    return counts


def bucket_of(counts: np.ndarray) -> np.ndarray:
    """The bucket of a type that stands so often, int64 [V]: 0 holds the most frequent."""
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
