"""From artifacts to an evaluator that is ready to score."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.evaluation.encode import EncodedBlock, encode_range
from stages.evaluation.evaluator import Evaluator, ExternalMemory
from stages.evaluation.readings import is_recomputed
from stages.evaluation.retrieval import IndexSearch, Retrieval, StoredNeighbors
from stages.evaluation.rows import Datastore, MemoryRow, ReadingPlan
from stages.memory.spec import Reading
from stages.models.language_model import LanguageModel, load_model
from stages.search.keys import StoredKeys
from stages.search.searcher import open_searcher


def open_evaluator(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    *,
    context: int,
    stride: int,
    by_document: bool,
    device: torch.device,
    precision: str,
) -> Evaluator:
    """Load the model, and what completed readings need.

    Args:
        read: artifacts by role, as `stages.evaluation.lineage` finds them.
        by_document: whether windows begin anew at every document.
    """
    tokens = read["tokens"]
    encode = partial(
        _encode,
        tokens.zarr("tokens.zarr"),
        by_document,
        eos=tokens.metrics["eos_id"],
        context=context,
        stride=stride,
        device=device,
        precision=precision,
    )
    model = load_model(read["model"].path, device)
    if not readings:
        return Evaluator(model, encode, (), None)
    k = max(max(r.k) for r in readings if isinstance(r.k, tuple))
    retrieval, lossless = _retrieval(read, k, device)
    datastore = open_datastore(read["datastore"], read["index"].config["metric"], device)
    own = read["encoder"].record == read["model"].record
    external = ExternalMemory(
        datastore,
        retrieval,
        model if own else load_model(read["encoder"].path, device),
        partial(encode, **{name: read["datastore"].config[name] for name in ("context", "stride")}),
        read["datastore"].config["key"],
        read["datastore"].config["dtype"],
    )
    return Evaluator(model, encode, rows_of(readings, datastore.metric, lossless), external)


def rows_of(readings: Sequence[Reading], metric: str, lossless: bool) -> tuple[MemoryRow, ...]:
    """The row that was asked for, and for a lone reading of a lossy index its twin.

    The twin reads the same neighbours with the other distances: recomputed from the stored keys
    where the index's were asked for, and the other way round.
    """
    rows = [_row(readings, metric, lossless)]
    if len(readings) == 1 and not lossless:
        twin = readings[0].model_copy(update={"exact": not readings[0].exact})
        if is_recomputed(twin, metric, lossless) != rows[0].plans[0].recompute:
            rows.append(_row([twin], metric, lossless))
    return tuple(rows)


def _row(readings: Sequence[Reading], metric: str, lossless: bool) -> MemoryRow:
    plans = []
    for reading in readings:
        recompute = is_recomputed(reading, metric, lossless)
        plans.append(ReadingPlan(reading, recompute, exact=recompute or lossless))
    return MemoryRow(tuple(plans), lossless)


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
    datastore = read["datastore"]
    same_tokens = datastore.input("corpus").record == read["tokens"].record
    own_split = datastore.config["split"] if same_tokens else None
    return IndexSearch(searcher, k, own_split), searcher.lossless


def _encode(
    tokens: Any,
    by_document: bool,
    model: LanguageModel,
    split: str,
    start: int,
    stop: int,
    **settings: Any,
) -> Iterator[EncodedBlock]:
    documents = np.asarray(tokens[f"{split}/doc_offsets"][:]) if by_document else None
    ids = tokens[f"{split}/ids"]
    return encode_range(model, ids, start=start, stop=stop, documents=documents, **settings)
