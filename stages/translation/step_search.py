"""Searches of a step of beam search: in an index, or among the pairs that are found for each sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from stages.lineage.runs import OwnRows
from stages.lineage.sources import PAIRS_SPLIT
from stages.retrieval.neighbors import FoundNeighbors, IndexSearch, Retrieval
from stages.retrieval.pair_search import PairKeys, PairSearch


class StepSearch(Protocol):
    """Finds neighbours for the rows of a batch of sentences."""

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Name the sentences of the next batch, by their numbers in the split, and their tokens."""

    def search(self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None) -> FoundNeighbors:
        """Neighbours of queries float32 [R, d], or of those of them in rows, bool [R]; of the others none.

        Args:
            sentences: of each query within the batch, int64 [R].
        """


@dataclass
class IndexSteps:
    """Searches an index for all rows at once.

    `own`: rows of the split that is translated, if the datastore was made of it: a sentence does not find its own.
    """

    index: IndexSearch
    own: OwnRows | None = None
    _numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), init=False)

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        self._numbers = np.asarray(numbers, np.int64)

    def search(self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None) -> FoundNeighbors:
        return self.index.search(queries, self._forbidden(sentences), rows)

    def _forbidden(self, sentences: np.ndarray) -> np.ndarray | None:
        """Rows of each row's own sentence, int64 [R, 2]."""
        if self.own is None:
            return None
        firsts = self.own.doc_offsets[self._numbers[sentences]].tolist()
        each = [self.own.forbidden("document", first, first + 1) for first in firsts]
        return np.concatenate([one for one in each if one is not None])


@dataclass
class PairSteps:
    """Searches the pairs of each row's sentence.

    `own`: whether sentences are of the split of the pairs, where none finds itself.
    """

    pairs: PairSearch
    own: bool = False
    _found: Sequence[PairKeys] = field(default=(), init=False)

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        self._found = self.pairs.open(sources, np.asarray(numbers, np.int64) if self.own else None)

    def search(self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None) -> FoundNeighbors:
        assert rows is None, "all rows are searched for"
        return FoundNeighbors(*self.pairs.nearest(queries, sentences, self._found))


def step_search(retrieval: Retrieval, split: str | None = None) -> StepSearch | None:
    """The searches of an evaluation's memory, for sentences of a split, or of none; None: no step can search it."""
    if isinstance(retrieval, IndexSearch):
        return IndexSteps(retrieval, retrieval.own.get(split) if split is not None else None)
    if isinstance(retrieval, PairSearch):
        return PairSteps(retrieval, split == PAIRS_SPLIT)
    return None
