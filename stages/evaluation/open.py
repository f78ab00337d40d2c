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
from stages.retrieval.external import Datastore, ExternalPlan
from stages.retrieval.neighbor_tokens import NeighborTokens
from stages.retrieval.neighbors import IndexSearch, Retrieval, StoredNeighbors
from stages.retrieval.reading import Reading
from stages.retrieval.recent import RecentPlan
from stages.retrieval.resolve import is_recomputed
from stages.retrieval.rows import MemoryRow, Plan
from stages.retrieval.union import UnionPlan
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
    external, lossless = None, True
    if "datastore" in read:
        external, lossless = _external_memory(read, readings, model, reader)
    datastore = None if external is None else external.datastore
    trained = evaluation_defaults(read["model"]).trained_with_memory
    rows = rows_of(readings, reader, datastore, lossless, trained)
    return Evaluator(model, reader, rows, external, last_words, _gate_memory(read, gate, datastore))


def open_rows(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    *,
    context: int,
    stride: int,
    by_document: bool,
    device: torch.device,
    precision: str,
) -> tuple[MemoryRow, ...]:
    """The rows of an evaluator, to plan by and to tell of; neither model nor index nor values are read.

    Args: as of `open_evaluator`.
    """
    tokens, datastore = read["tokens"], None
    reader = SplitReader(
        tokens.zarr("tokens.zarr"), tokens.metrics["eos_id"], context, stride, by_document, device, precision
    )
    if "datastore" in read:
        keys = StoredKeys(read["datastore"].zarr("datastore.zarr")["keys"])
        datastore = Datastore(keys, torch.empty(0, dtype=torch.int32), read["index"].config["metric"])
    trained = evaluation_defaults(read["model"]).trained_with_memory
    return rows_of(readings, reader, datastore, is_lossless(read), trained)


def is_lossless(read: Mapping[str, Artifact]) -> bool:
    """Whether the distances of the neighbours that are read, if any are, are those of the stored keys."""
    if "index" not in read:
        return True
    return bool(read["index"].metrics["lossless"] or ("neighbors" in read and read["neighbors"].config["exact"]))


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
) -> tuple[ExternalMemory, bool]:
    """The datastore that readings look into, and whether distances are those of its stored keys."""
    k = max(max(reading.k) for reading in readings if isinstance(reading.k, tuple))
    retrieval, lossless = _retrieval(read, k, reader.device)
    settings = read["datastore"].config
    memory = ExternalMemory(
        open_datastore(read["datastore"], read["index"].config["metric"], reader.device),
        retrieval,
        model if is_own_datastore(read) else _encoder(read, reader.device),
        replace(reader, context=settings["context"], stride=settings["stride"]),
        settings["key"],
        settings["dtype"],
    )
    return memory, lossless


def _encoder(read: Mapping[str, Artifact], device: torch.device) -> LanguageModel:
    """The model that made the keys of a datastore, reading as it did then."""
    settings = read["datastore"].config
    return load_model(read["encoder"].path, device, context=settings["context"], mem_length=settings.get("mem_length"))


def rows_of(
    readings: Sequence[Reading], reader: SplitReader, datastore: Datastore | None, lossless: bool, trained: bool
) -> tuple[MemoryRow, ...]:
    """The row that was asked for, beside a composition each of its readings alone, beside a lone reading its twin.

    A lossy index's twin reads the same neighbours with the other distances: recomputed from the stored
    keys where the index's were asked for, and the other way round. A tuned cache's is the unigram
    cache, blind to what the keys say.
    """
    if not readings:
        return ()
    plans = tuple(_plan(reading, reader, datastore, lossless) for reading in readings)
    rows = [MemoryRow(plans, trained)]
    if len(plans) > 1:
        alone = [MemoryRow((plan,), trained) for plan in plans]
        rows += [replace(row, distinction=_place(alone, place)) for place, row in enumerate(alone)]
    twin = _twin(readings[0], lossless) if len(readings) == 1 else None
    if twin is not None:
        row = MemoryRow((_plan(twin, reader, datastore, lossless),), trained)
        if row.plans[0].details != plans[0].details or row.name != rows[0].name:
            rows.append(row)
    return tuple(rows)


def _place(rows: Sequence[MemoryRow], place: int) -> str:
    """What tells a row from those before it with the same name."""
    alike = sum(row.name == rows[place].name for row in rows[: place + 1])
    return f" ({alike})" if alike > 1 else ""


def _twin(reading: Reading, lossless: bool) -> Reading | None:
    if "external" in reading.sources:
        return None if lossless else reading.model_copy(update={"exact": not reading.exact})
    if reading.sources != ("long",) or not {"theta", "temperature"} & set(reading.choices):
        return None
    return reading.model_copy(update={"theta": (0.0,), "temperature": None})


def _plan(reading: Reading, reader: SplitReader, datastore: Datastore | None, lossless: bool) -> Plan:
    recent = RecentPlan(reading, reader.context, reader.stride < reader.context, reader.device.type)
    if "external" not in reading.sources:
        return recent
    assert datastore is not None
    external = ExternalPlan(reading, datastore, is_recomputed(reading, datastore.metric, lossless), lossless)
    return external if reading.sources == ("external",) else UnionPlan(reading, recent, external)


def open_datastore(artifact: Artifact, metric: str, device: torch.device) -> Datastore:
    """A datastore's keys, to be read when they are needed, and its values, in memory."""
    group: Any = artifact.zarr("datastore.zarr")
    values = np.append(np.asarray(group["values"][:]), np.int32(-1))
    return Datastore(StoredKeys(group["keys"]), torch.from_numpy(values).to(device), metric)


def _retrieval(read: Mapping[str, Artifact], k: int, device: torch.device) -> tuple[Retrieval, bool]:
    """Where neighbours come from, and whether their distances are those of the stored keys."""
    index = read["index"]
    if "neighbors" in read:
        stored = read["neighbors"]
        lossless = stored.config["exact"] or index.metrics["lossless"]
        return StoredNeighbors(stored.zarr("neighbors.zarr"), k), lossless
    searcher = open_searcher(index.file("index.faiss"), index.config, device.type)
    return IndexSearch(searcher, k, own_splits(read["datastore"], read["tokens"])), searcher.lossless
