"""From artifacts to an evaluator that is ready to score."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.diagnostics.gate.gating import GateMemory
from stages.diagnostics.gate.settings import GateSettings, trained_numbers
from stages.encoding.split_reader import SplitReader
from stages.evaluation.evaluator import Evaluator, ExternalMemory
from stages.evaluation.results.last_word import LastWords
from stages.lineage.corpus import own_splits
from stages.methods.defaults import evaluation_defaults, is_own_datastore
from stages.models.language_model import LanguageModel, load_model
from stages.retrieval.datastore import Datastore
from stages.retrieval.neighbor_tokens import NeighborTokens
from stages.retrieval.neighbors import IndexSearch, Retrieval, StoredNeighbors
from stages.retrieval.reading import Reading
from stages.retrieval.rows import rows_of
from stages.retrieval.sources.source import SourceInputs
from stages.search.keys import StoredKeys
from stages.search.searcher import open_searcher


def open_evaluator(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    *,
    context: int,
    stride: int,
    mem_length: int | None,
    by_document: bool,
    device: torch.device,
    precision: str,
    gate: GateSettings | None = None,
    last_words: Mapping[str, LastWords] | None = None,
) -> Evaluator:
    """Load the model, and what completed readings need.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        context, stride, mem_length: how the model reads, as `resolve_windows` settles it.
        by_document: whether windows and carried state begin anew at every document.
        gate: what a gate reads, as `resolve_gate` settles it; None: as in training.
        last_words: of each split, the tokens that alone count.
    """
    tokens = read["tokens"]
    group = tokens.zarr("tokens.zarr")
    reader = SplitReader(group, tokens.metrics["eos_id"], context, stride, by_document, device, precision)
    model = load_model(read["model"].path, device, context=context, mem_length=mem_length)
    external = _external_memory(read, readings, model, reader) if "datastore" in read else None
    datastore = None if external is None else external.datastore
    trained = evaluation_defaults(read["model"]).trained_with_memory
    rows = rows_of(readings, SourceInputs(context, stride < context, device.type, datastore), trained)
    return Evaluator(model, reader, rows, external, last_words, _gate_memory(read, gate, datastore))


def _gate_memory(
    read: Mapping[str, Artifact], settings: GateSettings | None, datastore: Datastore | None
) -> GateMemory | None:
    """What the gate of the model reads, if it has one; `datastore`: what readings look into."""
    if "gate_neighbors" not in read:
        return None
    settings = settings or GateSettings()
    numbers = settings.gate_k or trained_numbers(read["model"])
    neighbors, k = read["gate_neighbors"], max(1, *numbers)
    if datastore is None or neighbors.find("datastore").record != read["datastore"].record:
        return GateMemory(NeighborTokens.of(neighbors, k), numbers, settings.shown)
    values = datastore.values[:-1].cpu().numpy()
    return GateMemory(NeighborTokens(neighbors.zarr("neighbors.zarr"), values, k), numbers, settings.shown)


def _external_memory(
    read: Mapping[str, Artifact], readings: Sequence[Reading], model: LanguageModel, reader: SplitReader
) -> ExternalMemory:
    """The datastore that readings look into."""
    k = max(reading.neighbors for reading in readings)
    retrieval, lossless = _retrieval(read, k, reader.device)
    settings = read["datastore"].config
    return ExternalMemory(
        open_datastore(read["datastore"], read["index"].config["metric"], lossless, reader.device),
        retrieval,
        model if is_own_datastore(read) else _encoder(read, reader.device),
        replace(reader, context=settings["context"], stride=settings["stride"]),
        settings["key"],
        settings["dtype"],
    )


def _encoder(read: Mapping[str, Artifact], device: torch.device) -> LanguageModel:
    """The model that made the keys of a datastore, reading as it did then."""
    settings = read["datastore"].config
    return load_model(read["encoder"].path, device, context=settings["context"], mem_length=settings.get("mem_length"))


def open_datastore(artifact: Artifact, metric: str, lossless: bool, device: torch.device) -> Datastore:
    """A datastore's keys, to be read when they are needed, and its values, in memory; see `Datastore`."""
    group: Any = artifact.zarr("datastore.zarr")
    values = np.append(np.asarray(group["values"][:]), np.int32(-1))
    return Datastore(StoredKeys(group["keys"]), torch.from_numpy(values).to(device), metric, lossless)


def _retrieval(read: Mapping[str, Artifact], k: int, device: torch.device) -> tuple[Retrieval, bool]:
    """Where neighbours come from, and whether their distances are those of the stored keys."""
    index = read["index"]
    if "neighbors" in read:
        stored = read["neighbors"]
        lossless = stored.config["exact"] or index.metrics["lossless"]
        return StoredNeighbors(stored.zarr("neighbors.zarr"), k), lossless
    searcher = open_searcher(index.file("index.faiss"), index.config, device.type)
    return IndexSearch(searcher, k, own_splits(read["datastore"], read["tokens"])), searcher.lossless
