"""Opening of the model that an evaluation reads, with its memories and probes, and of the rows of
the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.diagnostics import PROBES
from stages.diagnostics.probe import Probe
from stages.encoding.encode import HiddenMemory, SplitReader
from stages.encoding.key_encoder import KeyEncoder
from stages.evaluation.figures.places import LastWords
from stages.evaluation.range_reader import ExternalMemory, MatchedText, RangeReader
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.examples.pairs import Pairs
from stages.lineage.evaluation import MODELS_OWN
from stages.lineage.indexes import EXACT, row_counts, text_splits
from stages.lineage.rows import own_rows, stored_keys
from stages.lineage.sources import PAIRS, PAIRS_SPLIT
from stages.methods.defaults import evaluation_defaults, is_own_datastore
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model
from stages.registry import import_outside
from stages.retrieval.gate_reader import GateMemory
from stages.retrieval.neighbors import Datastore, IndexSearch, PointerSearch, StoredNeighbors
from stages.retrieval.pair_search import PairSearch, SimilarSentences
from stages.retrieval.reading import Reading
from stages.retrieval.rows import MemoryRow, rows_of
from stages.retrieval.sources.source import Needs, SourceInputs
from stages.search.keys import StoredKeys
from stages.search.open import open_searcher
from stages.suffixes.matches import SortedContexts
from stages.suffixes.sorting import open_contexts
from stages.text.tokens import open_split


def open_range_reader(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    windows: WindowSettings,
    *,
    by_document: bool,
    device: torch.device,
    precision: str,
    options: Mapping[str, Any],
    split: str,
    exclude: str = "self",
    last_words: Mapping[str, LastWords] | None = None,
) -> tuple[RangeReader, tuple[MemoryRow, ...]]:
    """Load the model and everything that completed readings need; returns the reader and the rows
    of these readings.

    Args:
        read: artifacts by role, as in `stages.lineage.evaluation`.
        windows: windows in which the model reads.
        by_document: whether windows and carried state start again at every document.
        options: resolved options of probes.
        split: the scored split.
        exclude: name of the rule for rows that tokens of the datastore's own text do not find in an
        index.
        last_words: by split, the only tokens that count; None: all count.
    """
    reader = SplitReader(Corpus.of(read["tokens"]), windows, by_document, device, precision)
    model = load_model(read["model"].path, device, windows)
    external = None
    if "datastore" in read:
        external = _external_memory(read, readings, model, reader, exclude)
    elif PAIRS in read:
        external = open_similar_pairs(read, readings[0], model, reader)
    datastore = None if external is None else external.datastore
    matched = _matched_text(read, exclude)
    rows = open_rows(
        read, readings, windows, device, datastore, None if matched is None else matched.contexts
    )
    return (
        RangeReader(
            model,
            reader,
            Needs.of_all(row.needs for row in rows),
            external,
            last_words,
            _hidden_memory(read, options, datastore),
            open_probes(read, options, split),
            matched=matched,
        ),
        rows,
    )


def open_rows(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    windows: WindowSettings,
    device: torch.device,
    datastore: Datastore | None = None,
    contexts: SortedContexts | None = None,
) -> tuple[MemoryRow, ...]:
    """The rows of `open_range_reader`; plans and reports need no opened datastore, so one without
    values is used.
    """
    values = torch.empty(0, dtype=torch.int32, device=device)
    if datastore is None and "datastore" in read:
        keys, metric = stored_keys(read["datastore"]), read["index"].config["metric"]
        datastore = Datastore(keys, values, metric, is_lossless(read))
    elif datastore is None and PAIRS in read:
        datastore = datastore_of(values, 0, readings[0])
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    overlapping = windows.stride < windows.context
    inputs = SourceInputs(
        windows.context, overlapping, device.type, datastore, contexts, vocabulary
    )
    model = read["model"]
    return rows_of(
        readings,
        inputs,
        evaluation_defaults(model).trained_with_memory,
        model_of(model).reads.source,
    )


def _matched_text(read: Mapping[str, Artifact], exclude: str) -> MatchedText | None:
    """The text of the exact index, if one is read."""
    if EXACT not in read:
        return None
    tokens, held = read["tokens"], text_splits(read[EXACT], read["tokens"])
    offsets = {
        split: np.asarray(open_split(tokens.zarr("tokens.zarr"), split).doc_offsets[:])
        for split in held
    }
    return MatchedText(open_contexts(read[EXACT]), offsets, exclude)


def is_lossless(read: Mapping[str, Artifact]) -> bool:
    """Whether distances of neighbours are computed from the stored keys, without loss."""
    return bool(
        read["index"].metrics["lossless"]
        or ("neighbors" in read and read["neighbors"].config["exact"])
    )


def open_probes(
    read: Mapping[str, Artifact], options: Mapping[str, Any], split: str
) -> dict[str, Probe]:
    """Probes that apply to the model, by name; arguments as in `open_range_reader`."""
    import_outside()  # a worker process plans no work, so outside probes are not imported yet
    opened = {name: PROBES.load(name).open(read, options, split) for name in PROBES.names()}
    return {name: probe for name, probe in opened.items() if probe is not None}


def _hidden_memory(
    read: Mapping[str, Artifact], options: Mapping[str, Any], datastore: Datastore | None
) -> HiddenMemory | None:
    """The memory that enters the model's hidden states, if any; it shares the values of `datastore`
    if it has those.
    """
    neighbors = read.get(MODELS_OWN)
    if neighbors is None:
        return None
    values = None
    if (
        datastore is not None
        and "datastore" in read
        and neighbors.find("datastore").matches(read["datastore"].record)
    ):
        # without the last value, -1, the token of missing neighbours
        values = datastore.values[:-1].cpu().numpy()
    return GateMemory.open(neighbors, options["gate_k"], values)


def _external_memory(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    model: LanguageModel,
    reader: SplitReader,
    exclude: str,
) -> ExternalMemory:
    """The datastore of the readings, and the source of its neighbours: stored ones, or a search."""
    index, k = read["index"], max(reading.neighbors for reading in readings)
    metric, held, counts = index.config["metric"], index.metrics.get("held"), row_counts(index)
    stored_values: Any = read["datastore"].zarr("datastore.zarr")["values"]
    values = torch.from_numpy(np.append(np.asarray(stored_values[:]), np.int32(-1))).to(
        reader.device
    )
    merged = (
        None
        if counts is None
        else torch.from_numpy(np.append(counts, np.int32(0))).to(reader.device)
    )
    datastore = Datastore(stored_keys(read["datastore"]), values, metric, is_lossless(read), merged)
    encoder = KeyEncoder.of(read["datastore"], reader, model if is_own_datastore(read) else None)
    if "neighbors" in read:
        stored = read["neighbors"].zarr("neighbors.zarr")
        return ExternalMemory(datastore, StoredNeighbors(stored, k, metric), encoder)
    keys = datastore.keys.rows, datastore.keys.dim
    searcher = open_searcher(
        index.file("index.faiss"), index.config, keys, reader.device.type, held
    )
    own = own_rows(read["datastore"], read["tokens"])
    search, fewest = IndexSearch(searcher, k, own, exclude), readings[0].value("pointers")
    if fewest is None:
        return ExternalMemory(datastore, search, encoder)
    return ExternalMemory(
        datastore, PointerSearch(search, datastore, reader.tokens, fewest), encoder
    )


def open_similar_pairs(
    read: Mapping[str, Artifact], reading: Reading, model: LanguageModel, reader: SplitReader
) -> ExternalMemory:
    """The pairs that a completed reading searches, all in memory.

    Args:
        read: artifacts by role; `PAIRS` has the pairs.
        reader: the way the model reads splits.
    """
    tokens, key = read[PAIRS], reading.comparison.key
    assert key is not None, "the reading is completed"
    own = Corpus.of(tokens)
    arrays = {
        f"{PAIRS_SPLIT}/{name}": np.asarray(own.arrays[f"{PAIRS_SPLIT}/{name}"][:])
        for name in own.read
    }
    examples = replace(own, arrays=arrays).examples(
        PAIRS_SPLIT, model.config.cutting(reader.windows, reader.by_document)
    )
    assert isinstance(examples, Pairs), "the reading was checked"
    similar = SimilarSentences(
        examples.source_ids, examples.sources, int(tokens.metrics["vocabulary_size"])
    )
    encoder = KeyEncoder(model, reader, key, "float32")
    search = PairSearch(
        examples, similar, encoder, reading.value("pairs"), reading.neighbors, metric_of(reading)
    )
    values = torch.from_numpy(np.append(examples.ids, -1).astype(np.int32)).to(reader.device)
    return ExternalMemory(datastore_of(values, model.config.width, reading), search, encoder)


def datastore_of(values: torch.Tensor, width: int, reading: Reading) -> Datastore:
    """A datastore of values int32 [N + 1] without stored keys: keys are computed again for each
    sentence.
    """
    return Datastore(
        StoredKeys(np.empty((0, width), np.float32), 1), values, metric_of(reading), lossless=True
    )


def metric_of(reading: Reading) -> str:
    """Metric of the search of a completed reading."""
    return {"l2": "l2", "dot": "ip", "scaled-dot": "ip"}[str(reading.comparison.similarity)]
