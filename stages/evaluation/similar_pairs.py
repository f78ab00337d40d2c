"""Opens the memory of a source `similar-pairs`: no datastore, but pairs that keys are made of when they are read."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder
from stages.evaluation.range_reader import ExternalMemory
from stages.examples.examples import Corpus
from stages.examples.pairs import Pairs
from stages.lineage.pairs import PAIRS, SPLIT
from stages.models.language_model import LanguageModel
from stages.retrieval.neighbors import Datastore
from stages.retrieval.pair_search import PairSearch
from stages.retrieval.reading import Reading
from stages.search.keys import StoredKeys
from stages.text.similar import SimilarSentences


def open_similar_pairs(
    read: Mapping[str, Artifact], reading: Reading, model: LanguageModel, reader: SplitReader
) -> ExternalMemory:
    """The pairs that a completed reading finds, all in memory.

    Args:
        read: artifacts by role; the pairs are those of `PAIRS`.
        reader: how the model reads splits.
    """
    tokens, key = read[PAIRS], reading.key
    assert key is not None, "the reading is completed"
    own = Corpus.of(tokens)
    arrays = {f"{SPLIT}/{name}": np.asarray(own.arrays[f"{SPLIT}/{name}"][:]) for name in own.read}
    examples = replace(own, arrays=arrays).examples(SPLIT, model.config.cutting(reader.windows, reader.by_document))
    assert isinstance(examples, Pairs), "the reading was checked"
    similar = SimilarSentences(examples.source_ids, examples.sources, int(tokens.metrics["vocabulary_size"]))
    encoder = KeyEncoder(model, reader, key, "float32")
    search = PairSearch(examples, similar, encoder, reading.value("pairs"), reading.neighbors, metric_of(reading))
    values = torch.from_numpy(np.append(examples.ids, -1).astype(np.int32)).to(reader.device)
    return ExternalMemory(datastore_of(values, model.config.width, reading), search, encoder)


def datastore_of(values: torch.Tensor, width: int, reading: Reading) -> Datastore:
    """Tokens int32 [N + 1] whose keys are made anew for each sentence: none is stored."""
    return Datastore(StoredKeys(np.empty((0, width), np.float32), 1), values, metric_of(reading), lossless=True)


def metric_of(reading: Reading) -> str:
    """Metric of the search of a completed reading."""
    return {"l2": "l2", "dot": "ip", "scaled-dot": "ip"}[str(reading.similarity)]
