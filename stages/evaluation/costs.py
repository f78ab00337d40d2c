"""Costs of a row of memory: searches, and bytes beside the model."""

from stages.artifacts.stage import Job
from stages.evaluation.config import EvaluateConfig
from stages.models.config import model_of
from stages.retrieval.book_input import BOOK
from stages.retrieval.rows import MemoryRow

DATASTORE_ROLES = ("index", "datastore")
"""Roles of the artifacts that a search of a datastore reads."""


COSTS_NOTHING: dict[str, float | int | None] = {"searches_per_token": 0.0, "bytes_beside_model": 0}
"""Costs of the model alone."""


def cost_of_row(job: Job[EvaluateConfig], row: MemoryRow | None) -> dict[str, float | int | None]:
    """Searches a token and bytes on disk that a row needs besides the model; None: not known.

    `row`: None: the model alone, with its open book.
    """
    read = job.inputs.artifacts
    if model_of(read["model"]).reads_neighbors:
        return {"searches_per_token": None, "bytes_beside_model": None}
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
    return {"searches_per_token": searches, "bytes_beside_model": sum(sizes.values())}
