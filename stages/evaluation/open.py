"""From artifacts to an evaluator that is ready to score."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.rows import RowsByName
from stages.diagnostics import PROBES
from stages.diagnostics.probe import Probe
from stages.encoding.hidden_memory import HiddenMemory
from stages.encoding.key_encoder import KeyEncoder
from stages.encoding.split_reader import SplitReader
from stages.evaluation.evaluator import Evaluator, ExternalMemory
from stages.evaluation.figures.last_word import LastWords
from stages.examples.corpus import Corpus
from stages.lineage.keys import stored_keys
from stages.lineage.rows import own_rows
from stages.methods.defaults import evaluation_defaults, is_own_datastore
from stages.models.language_model import LanguageModel, load_model
from stages.models.windows import WindowSettings
from stages.retrieval.datastore import Datastore
from stages.retrieval.gate_reader import open_hidden_memory
from stages.retrieval.neighbors import IndexSearch, Retrieval, StoredNeighbors
from stages.retrieval.reading import Reading
from stages.retrieval.rows import MemoryRow, rows_of
from stages.retrieval.sources.source import SourceInputs
from stages.search.open import open_searcher


def open_evaluator(
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
) -> Evaluator:
    """Load the model, and what completed readings need.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        windows: how the model reads.
        by_document: whether windows and carried state begin anew at every document.
        options: those of probes, resolved.
        split: that is scored.
        exclude: rows that tokens of the datastore's own text do not find, where an index is searched.
        last_words: of each split, the tokens that alone count.
    """
    tokens = read["tokens"]
    reader = SplitReader(Corpus.of(tokens), windows, by_document, device, precision)
    model = load_model(read["model"].path, device, windows)
    external = _external_memory(read, readings, model, reader, exclude) if "datastore" in read else None
    datastore = None if external is None else external.datastore
    trained = evaluation_defaults(read["model"]).trained_with_memory
    inputs = SourceInputs(windows.context, windows.stride < windows.context, device.type, datastore)
    return Evaluator(
        model,
        reader,
        rows_of(readings, inputs, trained),
        external,
        last_words,
        _hidden_memory(read, options, datastore),
        open_probes(read, options, split),
    )


def open_rows(
    read: Mapping[str, Artifact], readings: Sequence[Reading], windows: WindowSettings, device: torch.device
) -> tuple[MemoryRow, ...]:
    """The rows of an evaluator, to plan by and to tell of; neither model nor index nor values are read.

    Args: as of `open_evaluator`.
    """
    datastore = None
    if "datastore" in read:
        keys = stored_keys(read["datastore"])
        datastore = Datastore(
            keys, torch.empty(0, dtype=torch.int32, device=device), read["index"].config["metric"], is_lossless(read)
        )
    inputs = SourceInputs(windows.context, windows.stride < windows.context, device.type, datastore)
    return rows_of(readings, inputs, evaluation_defaults(read["model"]).trained_with_memory)


def is_lossless(read: Mapping[str, Artifact]) -> bool:
    """Whether the distances of the neighbours that are read are those of the stored keys."""
    return bool(read["index"].metrics["lossless"] or ("neighbors" in read and read["neighbors"].config["exact"]))


def _hidden_memory(
    read: Mapping[str, Artifact], options: Mapping[str, Any], datastore: Datastore | None
) -> HiddenMemory | None:
    """Open the memory that enters the model's hidden states; values of a shared datastore are in memory once."""
    if "gate_neighbors" not in read:
        return None
    values = None if datastore is None else datastore.values[:-1].cpu().numpy()
    return open_hidden_memory(read, options, read.get("datastore"), values)


def open_probes(read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> dict[str, Probe]:
    """Those that have something to show of the model, by name; see `open_evaluator`."""
    opened = {name: PROBES.load(name).open(read, options, split) for name in PROBES.names()}
    return {name: probe for name, probe in opened.items() if probe is not None}


def _external_memory(
    read: Mapping[str, Artifact], readings: Sequence[Reading], model: LanguageModel, reader: SplitReader, exclude: str
) -> ExternalMemory:
    """The datastore that readings look into."""
    k = max(reading.neighbors for reading in readings)
    retrieval = _retrieval(read, k, reader.device, exclude)
    datastore = open_datastore(read["datastore"], read["index"].config["metric"], is_lossless(read), reader.device)
    encoder = KeyEncoder.of(read["datastore"], reader, model if is_own_datastore(read) else None)
    return ExternalMemory(datastore, retrieval, encoder)


def open_datastore(artifact: Artifact, metric: str, lossless: bool, device: torch.device) -> Datastore:
    """A datastore's keys, to be read when they are needed, and its values, in memory; see `Datastore`."""
    group: Any = artifact.zarr("datastore.zarr")
    values = np.append(np.asarray(group["values"][:]), np.int32(-1))
    return Datastore(stored_keys(artifact), torch.from_numpy(values).to(device), metric, lossless)


def _retrieval(read: Mapping[str, Artifact], k: int, device: torch.device, exclude: str) -> Retrieval:
    """Where neighbours come from."""
    if "neighbors" in read:
        return StoredNeighbors(RowsByName(read["neighbors"].zarr("neighbors.zarr")), k, read["index"].config["metric"])
    index = read["index"]
    keys = stored_keys(read["datastore"])
    searcher = open_searcher(index.file("index.faiss"), index.config, (keys.rows, keys.dim), device.type)
    return IndexSearch(searcher, k, own_rows(read["datastore"], read["tokens"]), exclude)
