"""Code of the source `similar-pairs`: neighbours among the tokens of a few pairs of sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.encoding.key_encoder import KeyEncoder
from stages.examples.examples import Corpus
from stages.examples.pairs import Pairs
from stages.lineage.sources import PAIRS, PAIRS_SPLIT
from stages.retrieval.neighbors import Datastore, ExternalMemory
from stages.retrieval.pair_search import PairSearch, SimilarSentences
from stages.retrieval.reading import Reading
from stages.retrieval.sources.external import ExternalSource
from stages.retrieval.sources.source import About, Opening
from stages.search.keys import StoredKeys


class SimilarPairsSource(ExternalSource):
    """Neighbours like those of a datastore; rows are tokens of the split of the pairs."""

    role: ClassVar[str] = PAIRS

    @classmethod
    def open_memory(cls, opening: Opening) -> ExternalMemory:
        """The pairs that the reading searches, all in memory; it is the only reading."""
        tokens = opening.read[PAIRS]
        (reading,) = opening.readings
        key = reading.comparison.key
        assert key is not None, "the reading is completed"

        pairs = _open_pairs(tokens, opening)
        vocabulary = int(tokens.metrics["vocabulary_size"])
        similar = SimilarSentences(pairs.source_ids, pairs.sources, vocabulary)
        encoder = KeyEncoder(opening.model, opening.reader, key, "float32")
        search = PairSearch(
            pairs, similar, encoder, reading.value("pairs"), reading.neighbors, _metric_of(reading)
        )
        # The last value is the token of missing neighbours.
        values = torch.from_numpy(np.append(pairs.ids, -1).astype(np.int32))
        datastore = _datastore_of(
            values.to(opening.reader.device), opening.model.config.width, reading
        )
        return ExternalMemory(datastore, search, encoder)

    @classmethod
    def outline_memory(
        cls, read: Mapping[str, Artifact], readings: Sequence[Reading], device: torch.device
    ) -> Datastore:
        return _datastore_of(torch.empty(0, dtype=torch.int32, device=device), 0, readings[0])

    @property
    def about(self) -> About:
        """Description with the number of pairs instead of how distances were found."""
        return replace(super().about, details={"pairs": self.reading.value("pairs")})


def _open_pairs(tokens: Artifact, opening: Opening) -> Pairs:
    """The pairs of a tokens artifact, with all arrays in memory."""
    reader = opening.reader
    corpus = Corpus.of(tokens)
    arrays = {}
    for name in corpus.read:
        path = f"{PAIRS_SPLIT}/{name}"
        arrays[path] = np.asarray(corpus.arrays[path][:])
    cutting = opening.model.config.cutting(reader.windows, reader.by_document)
    examples = replace(corpus, arrays=arrays).examples(PAIRS_SPLIT, cutting)
    assert isinstance(examples, Pairs), "the reading was checked"
    return examples


def _datastore_of(values: torch.Tensor, width: int, reading: Reading) -> Datastore:
    """A datastore of values int32 [N + 1] without stored keys: keys are computed again for each
    sentence.
    """
    keys = StoredKeys(np.empty((0, width), np.float32), 1)
    return Datastore(keys, values, _metric_of(reading), lossless=True)


def _metric_of(reading: Reading) -> str:
    """Metric of the search of a completed reading."""
    return "l2" if reading.comparison.similarity == "l2" else "ip"
