"""Code of the source `external`: neighbours in a datastore, and their scores."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.key_encoder import KeyEncoder
from stages.lineage.indexes import row_counts
from stages.lineage.rows import own_rows, stored_keys
from stages.memory.external import (
    NearestRows,
    best_first,
    external_entries,
    scaled_dot,
    scores_from_distances,
)
from stages.methods.defaults import is_own_datastore
from stages.retrieval.grids import TEMPERATURE_FRACTIONS, score_spread
from stages.retrieval.neighbors import (
    Datastore,
    ExternalMemory,
    IndexSearch,
    PointerSearch,
    Retrieval,
    StoredNeighbors,
)
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Needs, Opening, Source
from stages.search.hidden import HiddenRows
from stages.search.open import open_searcher


class ExternalSource(Source):
    """Neighbours in a datastore, best first."""

    role: ClassVar[str] = "datastore"
    """Role of the artifact that holds the neighbours' rows."""

    @classmethod
    def open_memory(cls, opening: Opening) -> ExternalMemory:
        """The datastore of the readings, and the source of its neighbours: stored ones, or a
        search.
        """
        read = opening.read
        reader = opening.reader
        datastore = open_datastore(read, reader.device)
        model = opening.model if is_own_datastore(read) else None
        encoder = KeyEncoder.of(read["datastore"], reader, model)
        return ExternalMemory(datastore, _open_retrieval(opening, datastore), encoder)

    @classmethod
    def outline_memory(
        cls, read: Mapping[str, Artifact], readings: Sequence[Reading], device: torch.device
    ) -> Datastore:
        """The datastore without values."""
        values = torch.empty(0, dtype=torch.int32, device=device)
        metric = read["index"].config["metric"]
        return Datastore(stored_keys(read["datastore"]), values, metric, is_lossless(read))

    @classmethod
    def hidden_rows(cls, memory: ExternalMemory) -> Mapping[str, HiddenRows]:
        retrieval = memory.retrieval
        return {cls.role: retrieval.hidden} if isinstance(retrieval, IndexSearch) else {}

    @property
    def datastore(self) -> Datastore:
        """The datastore that is searched."""
        memory = self.memory
        assert memory is not None, "it is opened for a reading of it"
        datastore: Datastore = getattr(memory, "datastore", memory)
        return datastore

    @property
    def token_counts(self) -> Tensor:
        return self.datastore.token_counts

    @property
    def recompute(self) -> bool:
        """Whether scores are computed anew from the stored keys: those of the index are others, or
        inexact.
        """
        comparable = {"l2": ("l2",), "ip": ("dot", "scaled-dot")}[self.datastore.metric]
        inexact = self.reading.value("exact") and not self.datastore.lossless
        return inexact or self.reading.comparison.similarity not in comparable

    @property
    def exact(self) -> bool:
        """Whether scores are those of the stored keys, recomputed or not."""
        return self.recompute or self.datastore.lossless

    @property
    def about(self) -> About:
        """Description; if the index's distances are inexact, it is compared with those of the
        stored keys.
        """
        details: dict[str, Any] = {"exact_distances": self.exact}
        if self.reading.searched < 1:
            details["searched"] = self.reading.searched
        if self.reading.value("pointers") is not None:
            details["pointers"] = self.reading.value("pointers")
        if self.datastore.lossless:
            return About("k", doubling=True, details=details)
        other = self.reading.changed({"exact": not self.reading.value("exact")})
        return About(
            "k", True, f" ({'exact' if self.exact else 'quantised'} distances)", details, other
        )

    @property
    def needs(self) -> Needs:
        exact = frozenset({(self.metric, self.width)}) if self.recompute else frozenset()
        return Needs(neighbors=self.width, exact=exact)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve the neighbours of a range's tokens."""
        targets = scored_range.lm.targets
        ids, scores = self._scores(scored_range)

        def retrieve_part(part: slice) -> Retrieved:
            rows = ids[part].to(targets.device)
            neighbors = NearestRows(
                rows, scores[part].to(targets.device), self.datastore.values, self.datastore.counts
            )
            return retrieve(external_entries(neighbors), targets[part], rows, self.role)

        return retrieve_part

    @property
    def metric(self) -> str:
        """Metric of the distances behind the scores: the index's, or the recomputed one."""
        if not self.recompute:
            return self.datastore.metric
        return "l2" if self.reading.comparison.similarity == "l2" else "ip"

    def _scores(self, scored_range: ScoredRange) -> tuple[Tensor, Tensor]:
        """Neighbours int64 [n, k] and their similarity float32 [n, k], best first."""
        neighbors = scored_range.neighbors
        metric = self.metric
        assert neighbors is not None
        ids = neighbors.ids[:, : self.width]
        distances = neighbors.distances[:, : self.width]
        if self.recompute:
            stored = scored_range.stored_distances
            distances = stored.nearest(self.datastore.keys, metric, self.width).distances
        scores = scores_from_distances(torch.from_numpy(distances), metric)
        if self.reading.comparison.similarity == "scaled-dot":
            scores = scaled_dot(scores, self.datastore.keys.dim)
        # recomputed distances may change the order, and cut-offs count from the best
        return (
            best_first(torch.from_numpy(ids), scores)
            if self.recompute
            else (torch.from_numpy(ids), scores)
        )

    def narrowed(self, cutoff: int) -> Self:
        return self

    def spread(self, sample: list[ScoredRange]) -> float:
        """Unit of default temperatures, from a sample of tokens."""
        scores = [self._scores(part)[1] for part in sample]
        return score_spread(torch.cat(scores), self.reading.comparison.similarity or "dot")

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """1/τ; τ are fractions of the spread of scores."""
        return tuple(1 / (fraction * spread) for fraction in TEMPERATURE_FRACTIONS)


def open_datastore(read: Mapping[str, Artifact], device: torch.device) -> Datastore:
    """The datastore that an evaluation reads, with its values on a device."""
    index = read["index"]
    stored: Any = read["datastore"].zarr("datastore.zarr")["values"]
    # The last value is the token of missing neighbours.
    values = np.append(np.asarray(stored[:]), np.int32(-1))
    counts = row_counts(index)
    merged = None
    if counts is not None:
        merged = torch.from_numpy(np.append(counts, np.int32(0))).to(device)
    return Datastore(
        stored_keys(read["datastore"]),
        torch.from_numpy(values).to(device),
        index.config["metric"],
        is_lossless(read),
        merged,
    )


def _open_retrieval(opening: Opening, datastore: Datastore) -> Retrieval:
    """The source of a datastore's neighbours, as many as the readings read at most."""
    read = opening.read
    reader = opening.reader
    index = read["index"]
    k = max(reading.neighbors for reading in opening.readings)
    if "neighbors" in read:
        return StoredNeighbors(read["neighbors"].zarr("neighbors.zarr"), k, datastore.metric)

    searcher = open_searcher(
        index.file("index.faiss"),
        index.config,
        (datastore.keys.rows, datastore.keys.dim),
        reader.device.type,
        index.metrics.get("held"),
    )
    rows_of_splits = own_rows(read["datastore"], read["tokens"])
    search = IndexSearch(searcher, k, rows_of_splits, opening.exclude)
    # A reading with pointers stands alone.
    fewest = opening.readings[0].value("pointers")
    if fewest is None:
        return search
    return PointerSearch(search, datastore, reader.tokens, fewest)


def is_lossless(read: Mapping[str, Artifact]) -> bool:
    """Whether distances of neighbours are computed from the stored keys, without loss."""
    is_recomputed = "neighbors" in read and read["neighbors"].config["exact"]
    return bool(read["index"].metrics["lossless"] or is_recomputed)
