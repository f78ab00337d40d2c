"""Readings of a datastore: neighbours that a search found, and how they are scored."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stages.memory.external import Neighbors, best_first, external_entries, scaled_dot, scores_from_distances
from stages.retrieval.grids import TEMPERATURE_FRACTIONS, ReadingGrid, reading_grid, score_spread
from stages.retrieval.reading import Reading
from stages.retrieval.resolve import doubling_cutoffs
from stages.retrieval.retrieved import Retrieved, retrieve
from stages.retrieval.scored_range import CHUNK_ENTRIES, Recomputed, RetrievedOf, ScoredRange
from stages.search.keys import StoredKeys


@dataclass(frozen=True)
class Datastore:
    """What readings need of a datastore: its keys; values int32 [N + 1], of which the last is -1."""

    keys: StoredKeys
    values: Tensor
    metric: str
    """Of the distances that a search gives: `l2` or `ip`."""


def default_scales(spread: float) -> tuple[float, ...]:
    """Factors 1/τ that `tune` tries; τ are fractions of the spread of scores."""
    return tuple(1 / (fraction * spread) for fraction in TEMPERATURE_FRACTIONS)


@dataclass(frozen=True)
class ExternalPlan:
    """One reading of a datastore, all selected but what the grid decides."""

    reading: Reading
    datastore: Datastore
    recompute: bool
    """Whether scores are computed anew from the stored keys."""
    lossless: bool
    """Whether distances are found as the stored keys give them."""
    size_name = "k"
    by_window = False

    @property
    def parts(self) -> "tuple[ExternalPlan]":
        """Itself: one kind of memory."""
        return (self,)

    @property
    def exact(self) -> bool:
        """Whether scores are those of the stored keys, recomputed or not."""
        return self.recompute or self.lossless

    @property
    def distinction(self) -> str:
        """What scores are made of, where that can differ."""
        if self.lossless:
            return ""
        return f" ({'exact' if self.exact else 'quantised'} distances)"

    @property
    def details(self) -> dict[str, Any]:
        """What else a report tells of the reading."""
        return {"exact_distances": self.exact}

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Numbers of neighbours to choose from."""
        assert isinstance(self.reading.k, tuple)
        return tuple(sorted(set(self.reading.k)))

    @property
    def k(self) -> int:
        """The most neighbours that may be read."""
        return self.cutoffs[-1]

    @property
    def positions_at_once(self) -> int:
        return max(1, CHUNK_ENTRIES[self.datastore.values.device.type] // self.k)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """What a range's tokens read: their neighbours."""
        targets = scored_range.lm.targets
        ids, scores = self._scores(scored_range)

        def of(part: slice) -> Retrieved:
            found = Neighbors(ids[part].to(targets.device), scores[part].to(targets.device), self.datastore.values)
            return retrieve(external_entries(found), targets[part])

        return of

    @property
    def metric(self) -> str:
        """Of the distances that scores are made of: the index's, or what they are recomputed in."""
        if not self.recompute:
            return self.datastore.metric
        return "l2" if self.reading.similarity == "l2" else "ip"

    def recomputed(self, scored_range: ScoredRange) -> Recomputed:
        """Distances of a range's neighbours from the stored keys, for a plan that recomputes them."""
        return scored_range.exact_distances(self.datastore.keys, self.metric, self.k)

    def _scores(self, scored_range: ScoredRange) -> tuple[Tensor, Tensor]:
        """Neighbours int64 [n, k] and their similarity float32 [n, k], best first."""
        found, metric = scored_range.found, self.metric
        assert found is not None
        ids, distances = found.ids[:, : self.k], found.distances[:, : self.k]
        if self.recompute:
            distances = self.recomputed(scored_range).distances
        scores = scores_from_distances(torch.from_numpy(distances), metric)
        if self.reading.similarity == "scaled-dot":
            scores = scaled_dot(scores, self.datastore.keys.dim)
        return best_first(torch.from_numpy(ids), scores) if self.recompute else (torch.from_numpy(ids), scores)

    def narrowed(self, cutoff: int) -> "ExternalPlan":
        """Itself: all neighbours are found, and those that are right are counted, whatever is read."""
        return self

    def spread(self, sample: list[ScoredRange]) -> float:
        """What default temperatures are measured in, from a sample of tokens."""
        scores = [self._scores(part)[1] for part in sample]
        return score_spread(torch.cat(scores), self.reading.similarity or "dot")

    def grid(self, spread: float, alone: bool) -> ReadingGrid:
        """What the reading may be set to.

        Args:
            spread: of a sample; default temperatures are fractions of it.
            alone: whether to look at all doubling numbers of neighbours beside those to choose from.
        """
        doubling = doubling_cutoffs(self.k) if alone else ()
        return reading_grid(self.reading, default_scales(spread), tuple(sorted({*self.cutoffs, *doubling})))
