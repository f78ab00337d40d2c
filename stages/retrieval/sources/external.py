"""Neighbours found by a search, and their scores: in a datastore, or among the tokens of a few
pairs.
"""

from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from stages.lineage.sources import PAIRS
from stages.memory.external import (
    Neighbors,
    best_first,
    external_entries,
    scaled_dot,
    scores_from_distances,
)
from stages.retrieval.grids import TEMPERATURE_FRACTIONS, score_spread
from stages.retrieval.neighbors import Datastore
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Needs, Source


class ExternalSource(Source):
    """Neighbours in a datastore, best first."""

    role: ClassVar[str] = "datastore"
    """Role of the artifact that holds the neighbours' rows."""

    @property
    def datastore(self) -> Datastore:
        """The datastore that is searched."""
        assert self.inputs.datastore is not None, "it is opened for a reading of it"
        return self.inputs.datastore

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

        def of(part: slice) -> Retrieved:
            rows = ids[part].to(targets.device)
            found = Neighbors(
                rows, scores[part].to(targets.device), self.datastore.values, self.datastore.counts
            )
            return retrieve(external_entries(found), targets[part], rows, self.role)

        return of

    @property
    def metric(self) -> str:
        """Metric of the distances behind the scores: the index's, or the recomputed one."""
        if not self.recompute:
            return self.datastore.metric
        return "l2" if self.reading.comparison.similarity == "l2" else "ip"

    def _scores(self, scored_range: ScoredRange) -> tuple[Tensor, Tensor]:
        """Neighbours int64 [n, k] and their similarity float32 [n, k], best first."""
        found, metric = scored_range.found, self.metric
        assert found is not None
        ids, distances = found.ids[:, : self.width], found.distances[:, : self.width]
        if self.recompute:
            distances = scored_range.exact_distances(
                self.datastore.keys, metric, self.width
            ).distances
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


class SimilarPairsSource(ExternalSource):
    """Neighbours like those of a datastore; rows are tokens of the split of the pairs."""

    role: ClassVar[str] = PAIRS

    @property
    def about(self) -> About:
        """Description with the number of pairs instead of how distances were found."""
        return replace(super().about, details={"pairs": self.reading.value("pairs")})
