"""Neighbours among the tokens of a few sentence pairs: those with the sources most similar to the
current one.

No datastore is stored: keys of the pairs are made when their sentence is read.

Source: Dai et al. 2023 (Simple and Scalable Nearest Neighbor Machine Translation,
arXiv:2302.12188), section 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.examples.batching import token_batches
from stages.examples.examples import BATCH_TOKENS
from stages.examples.pairs import Pairs
from stages.lineage.sources import PAIRS_SPLIT
from stages.models.computing import autocast
from stages.retrieval.neighbors import FoundNeighbors, Retrieval
from stages.search.distances import pair_scores
from stages.search.ranking import best_first, score_to_distance
from stages.search.top_k import runs

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class SimilarSentences:
    """Sentences to compare others with; their token counts are computed once."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> None:
        """Count the tokens of the sentences.

        Args:
            ids: token ids [T].
            offsets: int64 [D + 1]: sentence i is the tokens [offsets[i], offsets[i+1]), the last of
                which ends it.
            vocabulary: number of token types.
        """
        # Imported here, since other evaluations need no scipy.
        from stages.text.bm25 import SCORINGS, Bm25Index

        self._vocabulary = vocabulary
        self._index = Bm25Index(_counts(ids, offsets, vocabulary), SCORINGS["lucene"])

    def find(
        self, sentences: Sequence[np.ndarray], count: int, own_numbers: np.ndarray | None = None
    ) -> np.ndarray:
        """The sentences most similar to each given one, best first; ties go to the smaller number.

        Args:
            sentences: tokens of each, the last of which ends it.
            own_numbers: int64 [n], the number of each sentence itself, which it may not find; None:
                each may find all.
        Returns: numbers, int64 [n, count], -1 where fewer share a token.

        >>> similar = SimilarSentences(np.array([1, 2, 0, 3, 0, 2, 0]), np.array([0, 3, 5, 7]), 4)
        >>> similar.find([np.array([2, 0]), np.array([3, 0])], 2).tolist()
        [[2, 0], [1, -1]]
        """
        lengths = [len(sentence) for sentence in sentences]
        offsets = np.append(0, np.cumsum(lengths))
        counts = _counts(np.concatenate(sentences), offsets, self._vocabulary)

        # Ranges of numbers [start, stop) that each may not find; an empty one hides nothing.
        hidden = np.zeros((len(sentences), 2), np.int64)
        if own_numbers is not None:
            hidden = np.stack([own_numbers, own_numbers + 1], axis=1)
        numbers, _ = self._index.find(counts, count, hidden)
        return numbers


def _counts(ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> "csr_array":
    """Token counts [D, V] of sentences without their ends."""
    from stages.text.bm25 import term_counts

    is_counted = np.ones(len(ids), bool)
    is_counted[offsets[1:] - 1] = False
    # Before sentence i there were i ends.
    offsets_without_ends = offsets - np.arange(len(offsets))
    return term_counts(ids[is_counted], offsets_without_ends, vocabulary)


SENTENCES = 64
"""Number of sentences whose pairs are in memory at a time."""


class PairKeys(NamedTuple):
    """Tokens of the pairs found for a sentence: rows of their split, int64 [m], and keys, float32
    [m, d].
    """

    rows: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True)
class PairSearch(Retrieval):
    """Searches the tokens of `count` pairs per sentence exactly; a sentence of their split does not
    find itself.
    """

    pairs: Pairs
    similar: SimilarSentences
    encoder: KeyEncoder
    count: int
    k: int
    metric: str

    def find(
        self,
        split: str,
        start: int,
        stop: int,
        keys: np.ndarray | None,
        rows: np.ndarray | None = None,
    ) -> FoundNeighbors:
        """Neighbours of tokens [start, stop); see `Retrieval`."""
        assert keys is not None and rows is None, "all tokens are searched for, with their keys"
        reader = self.encoder.reader
        cutting = self.encoder.model.config.cutting(reader.windows, reader.by_document)
        scored = reader.corpus.examples(split, cutting)
        assert isinstance(scored, Pairs), "sentences have sources"

        ids = []
        distances = []
        first, last = scored.documents_of(start, stop)
        for begin in range(first, last, SENTENCES):
            numbers = np.arange(begin, min(begin + SENTENCES, last))
            part_start = max(start, scored.documents[numbers[0]])
            part_stop = min(stop, scored.documents[numbers[-1] + 1])
            tokens = np.arange(part_start, part_stop)

            sources = [scored.source(number) for number in numbers.tolist()]
            pair_keys = self.open(sources, numbers if split == PAIRS_SPLIT else None)
            sentence = np.searchsorted(scored.documents[numbers], tokens, side="right") - 1
            nearest = self.nearest(keys[tokens - start], sentence, pair_keys)
            ids.append(nearest[0])
            distances.append(nearest[1])
        return FoundNeighbors(np.concatenate(ids), np.concatenate(distances))

    def steps(self, split: str | None = None) -> "PairSteps":
        return PairSteps(self, split == PAIRS_SPLIT)

    def open(
        self, sources: Sequence[np.ndarray], own_numbers: np.ndarray | None = None
    ) -> list[PairKeys]:
        """Keys of the pairs found for each of some sentences.

        A pair that several sentences find is encoded once; pairs of similar length are encoded
        together.

        Args:
            sources: tokens of each, `<eos>` at the end.
            own_numbers: numbers of the sentences in the split of the pairs, int64 [n]; None: they are
                not of that split.
        """
        similar = self.similar.find(sources, self.count, own_numbers)
        # Missing ones are -1.
        pairs_of_sentence = [np.sort(row[row >= 0]) for row in similar]

        # The tokens of all pairs stand end to end, each pair once.
        numbers = np.unique(np.concatenate(pairs_of_sentence))
        ends = np.cumsum(self.pairs.lengths[numbers])
        keys = self._keys(numbers, ends)

        result = []
        for pairs in pairs_of_sentence:
            lengths = self.pairs.lengths[pairs]
            rows = runs(self.pairs.starts(pairs), lengths)
            first_keys = ends[np.searchsorted(numbers, pairs)] - lengths
            key_indices = runs(first_keys, lengths)
            result.append(PairKeys(rows, keys[key_indices]))
        return result

    def nearest(
        self, queries: np.ndarray, sentences: np.ndarray, pair_keys: Sequence[PairKeys]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest tokens among each query's own pairs; ties go to the smaller row.

        Args:
            queries: float32 [n, d].
            sentences: number of the sentence of each query, int64 [n].
            pair_keys: `open` of the sentences.
        Returns: rows int64 [n, k], -1 where missing, and distances float32 [n, k].
        """
        # The tokens of all sentences' pairs end to end, and where those of each sentence begin.
        rows = np.concatenate([part.rows for part in pair_keys])
        keys = np.concatenate([part.keys for part in pair_keys])
        sizes = np.array([len(part.rows) for part in pair_keys])
        firsts = np.cumsum(sizes) - sizes

        # Every query is compared with all tokens of its sentence's pairs. For each of these c
        # comparisons: the query, its column among those of the query, and the index of the key.
        widths = sizes[sentences]
        query_of = np.repeat(np.arange(len(queries)), widths)
        comparisons_before = np.cumsum(widths) - widths
        columns = np.arange(len(query_of)) - comparisons_before[query_of]
        key_of = firsts[sentences][query_of] + columns

        # The smallest score is the best one; inf is missing.
        shape = (len(queries), int(widths.max(initial=1)))
        scores = np.full(shape, np.inf, np.float32)
        ids = np.full(shape, -1, np.int64)
        scores[query_of, columns] = pair_scores(queries, query_of, keys, key_of, self.metric)
        ids[query_of, columns] = rows[key_of]
        best, nearest = best_first(scores, ids, self.k)
        return nearest, score_to_distance(best, self.metric)

    def _keys(self, numbers: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Keys, float32 [m, d], of all tokens of some pairs.

        Args:
            numbers: of the pairs.
            ends: where each pair ends among the m tokens.
        """
        device = self.encoder.reader.device
        model = self.encoder.model
        num_tokens = int(ends[-1]) if len(ends) else 0
        keys = np.empty((num_tokens, model.config.width), np.float32)

        # Pairs of similar length waste little padding.
        sizes = self.pairs.sizes[numbers]
        order = np.argsort(sizes, kind="stable")
        for begin, end in token_batches(sizes[order], BATCH_TOKENS):
            members = order[begin:end]
            batch_numbers = numbers[members]
            batch = self.pairs.batch(batch_numbers).to(device)
            with torch.no_grad(), autocast(device, self.encoder.reader.precision):
                encoding = model.read(batch)
                encoded = batch.rows(encoding.key(self.encoder.key))

            lengths = self.pairs.lengths[batch_numbers]
            key_indices = runs(ends[members] - lengths, lengths)
            keys[key_indices] = search_keys(self.encoder.rounded(encoded))
        return keys


@dataclass
class PairSteps:
    """Step search of the similar pairs of each row's sentence.

    `is_own_split`: whether sentences come from the split of the pairs; then a sentence must not find itself.
    """

    pairs: PairSearch
    is_own_split: bool = False
    _pairs: Sequence[PairKeys] = field(default=(), init=False)

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        own_numbers = np.asarray(numbers, np.int64) if self.is_own_split else None
        self._pairs = self.pairs.open(sources, own_numbers)

    def search(
        self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None
    ) -> FoundNeighbors:
        assert rows is None, "all rows are searched for"
        return FoundNeighbors(*self.pairs.nearest(queries, sentences, self._pairs))
