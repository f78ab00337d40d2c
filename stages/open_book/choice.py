"""Choice of passages for strides: by BM25 of the tokens before, or by hits of their keys."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import search_keys
from stages.open_book.passages import Passages
from stages.retrieval.neighbors import ExternalMemory
from stages.text.bm25 import SCORINGS, Bm25Index, term_counts


class Query(NamedTuple):
    """Tokens [start, stop) of a split, by which passages for the stride after them are chosen."""

    start: int
    stop: int


class Chosen(NamedTuple):
    """Passages for n queries, the best first.

    `numbers`, int64 [n, k]: -1 where fewer match. `scores`, float32 [n, k].
    """

    numbers: np.ndarray
    scores: np.ndarray

    @classmethod
    def nothing(cls, queries: int, k: int) -> "Chosen":
        return cls(np.full((queries, k), -1), np.zeros((queries, k), np.float32))


class PassageChoice(ABC):
    """Finds the passages that suit queries."""

    @abstractmethod
    def choose(
        self,
        reader: SplitReader,
        split: str,
        queries: Sequence[Query],
        k: int,
        hidden: np.ndarray,
    ) -> Chosen:
        """The k best passages for each query of at least one token.

        Args:
            reader: reader of the text that queries are of.
            hidden: range [first, last) of passages that each query must not find, int64 [n, 2].
        """


@dataclass(frozen=True)
class Bm25Choice(PassageChoice):
    """BM25 of the query's tokens, as Lucene scores it; a passage shares at least one of them.

    Source: Ram et al. 2023 (In-Context RALM, arXiv:2302.00083), section 4.1.
    """

    index: Bm25Index

    @classmethod
    def of(
        cls, ids: np.ndarray, passages: Passages, vocabulary: int, scoring: str = "lucene"
    ) -> "Bm25Choice":
        """Index the passages of a text; `ids`: its tokens [T]."""
        return cls(Bm25Index(term_counts(ids, passages.bounds, vocabulary), SCORINGS[scoring]))

    def choose(
        self,
        reader: SplitReader,
        split: str,
        queries: Sequence[Query],
        k: int,
        hidden: np.ndarray,
    ) -> Chosen:
        tokens = [reader.tokens(split, query.start, query.stop) for query in queries]
        offsets = np.append(0, np.cumsum([len(query) for query in tokens]))
        vocabulary = self.index.counts.shape[1]
        counts = term_counts(np.concatenate(tokens), offsets, vocabulary)
        numbers, scores = self.index.find(counts, k, hidden)
        return Chosen(numbers, np.where(numbers < 0, 0, scores).astype(np.float32))


HITS = 16
"""Nearest rows of each token of a query that count."""


@dataclass(frozen=True)
class KeyChoice(PassageChoice):
    """The passages with most of the rows that a search with the query's keys finds.

    A score is the mean number of hits of the query's tokens in a passage.
    """

    external: ExternalMemory
    passages: Passages
    """Passages of the datastore's text, whose row i is token i."""

    def choose(
        self,
        reader: SplitReader,
        split: str,
        queries: Sequence[Query],
        k: int,
        hidden: np.ndarray,
    ) -> Chosen:
        start = min(query.start for query in queries)
        stop = max(query.stop for query in queries)
        rows = self._rows(reader.corpus, split, start, stop)
        numbers = self.passages.of_rows(rows)

        chosen = Chosen.nothing(len(queries), k)
        for place, query in enumerate(queries):
            hits = numbers[query.start - start : query.stop - start].ravel()
            first, last = hidden[place]
            is_allowed = (hits >= 0) & ((hits < first) | (hits >= last))
            candidates, counts = np.unique(hits[is_allowed], return_counts=True)
            # A stable order lets ties go to the smaller number.
            best = np.argsort(-counts, kind="stable")[:k]
            chosen.numbers[place, : len(best)] = candidates[best]
            chosen.scores[place, : len(best)] = counts[best] / (query.stop - query.start)
        return chosen

    def _rows(self, corpus: Any, split: str, start: int, stop: int) -> np.ndarray:
        """Rows found for tokens [start, stop), int64 [n, HITS at most]; -1: none."""
        retrieval = self.external.retrieval
        keys = None
        if retrieval.needs_keys:
            encoder = self.external.encoder
            # The corpus may be another than the encoder's: one whose future was changed.
            encoder = replace(encoder, reader=replace(encoder.reader, corpus=corpus))
            keys = search_keys(encoder.encode(split, start, stop, None).keys)
        neighbors = retrieval.find(split, start, stop, keys)
        return np.asarray(neighbors.ids[:, :HITS], np.int64)
