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
        lengths = [len(query_tokens) for query_tokens in tokens]
        offsets = np.append(0, np.cumsum(lengths))
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
        """Count the hits of each query; one search serves all, from the first token to the last."""
        start = min(query.start for query in queries)
        stop = max(query.stop for query in queries)
        rows = self._rows(reader.corpus, split, start, stop)
        numbers = self.passages.of_rows(rows)

        chosen = Chosen.nothing(len(queries), k)
        for index, query in enumerate(queries):
            # The passages of all neighbours of all tokens of the query; -1: none.
            hits = numbers[query.start - start : query.stop - start].ravel()
            first, last = hidden[index]
            is_hidden = (hits >= first) & (hits < last)
            hits = hits[(hits >= 0) & ~is_hidden]

            candidates, counts = np.unique(hits, return_counts=True)
            # A stable order lets ties go to the smaller number.
            best = np.argsort(-counts, kind="stable")[:k]
            length = query.stop - query.start
            chosen.numbers[index, : len(best)] = candidates[best]
            chosen.scores[index, : len(best)] = counts[best] / length
        return chosen

    def _rows(self, corpus: Any, split: str, start: int, stop: int) -> np.ndarray:
        """Rows found for tokens [start, stop), int64 [n, HITS at most]; -1: none."""
        retrieval = self.external.retrieval
        keys = None
        if retrieval.needs_keys:
            encoder = self.external.encoder
            # The corpus may be another than the encoder's: one whose future was changed.
            reader = replace(encoder.reader, corpus=corpus)
            encoder = replace(encoder, reader=reader)
            encoded = encoder.encode(split, start, stop, None)
            keys = search_keys(encoded.keys)
        neighbors = retrieval.find(split, start, stop, keys)
        return np.asarray(neighbors.ids[:, :HITS], np.int64)
