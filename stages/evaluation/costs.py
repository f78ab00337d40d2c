"""Costs of a row of memory: searches, tokens that the model reads, bytes and seconds."""

from typing import NamedTuple

from stages.artifacts.stage import Job
from stages.evaluation.config import EvaluateConfig
from stages.lineage.making import making_seconds
from stages.models.config import model_of
from stages.retrieval.book_input import BOOK
from stages.retrieval.rows import MemoryRow

DATASTORE_ROLES = ("index", "datastore")
"""Roles of the artifacts that a search of a datastore reads."""
Costs = dict[str, float | int | None]
"""Costs by the names of their measures; None: not known."""


class Spent(NamedTuple):
    """Work of a row while the split was read."""

    forward_tokens: float
    """Tokens that the model read for each scored one."""
    seconds: float


class _Read(NamedTuple):
    """Reading of a row besides the model."""

    searches: float
    """Searches for each token."""
    sizes: dict[str, int]
    """Bytes on disk of each artifact, by its role."""


def cost_of_model(job: Job[EvaluateConfig], spent: Spent) -> Costs:
    """Costs of the model alone, without what an open book takes."""
    return _costs(job, _Read(0.0, {}), spent)


def cost_of_row(job: Job[EvaluateConfig], row: MemoryRow | None, spent: Spent) -> Costs:
    """Costs of a row.

    `row`: None: the model alone, with its open book.
    """
    if model_of(job.inputs["model"]).reads_neighbors:
        return dict.fromkeys(
            ("searches_per_token", "forward_tokens", "seconds", "bytes_beside_model")
        )
    return _costs(job, _read_by(job, row), spent)


def _costs(job: Job[EvaluateConfig], besides: _Read, spent: Spent) -> Costs:
    read = job.inputs.artifacts
    making = making_seconds(read[role] for role in ("model", *besides.sizes))
    return {
        "searches_per_token": besides.searches,
        "forward_tokens": spent.forward_tokens,
        "seconds": None if making is None else making + spent.seconds,
        "bytes_beside_model": sum(besides.sizes.values()),
    }


def _read_by(job: Job[EvaluateConfig], row: MemoryRow | None) -> _Read:
    """Searches and artifacts of a row besides the model; `row` as in `cost_of_row`."""
    read = job.inputs.artifacts
    searches = 0.0
    sizes = dict[str, int]()
    book = job.config.open_book
    if book is not None:
        searches += 1 / book.stride if book.by == "bm25" else 1.0
        sizes[BOOK.role] = BOOK.stored_bytes(read[BOOK.role])
        if book.by == "keys":
            sizes |= {role: read[role].bytes for role in DATASTORE_ROLES}

    for source in row.sources if row else ():
        for settings in source.reading.source_settings:
            if settings.searches:
                searches += source.reading.searched
            if settings.reads_datastore:
                sizes |= {role: read[role].bytes for role in DATASTORE_ROLES}
            for memory in settings.inputs_read(read):
                sizes[memory.role] = memory.stored_bytes(read[memory.role])
    return _Read(searches, sizes)
