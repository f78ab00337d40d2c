"""Readings that join a datastore's neighbours with the recent past of the split itself."""

from dataclasses import dataclass, replace
from typing import Any

from stages.retrieval.external import ExternalPlan, default_scales
from stages.retrieval.grids import ReadingGrid, reading_grid
from stages.retrieval.reading import Reading
from stages.retrieval.recent import RecentPlan
from stages.retrieval.retrieved import Retrieved
from stages.retrieval.scored_range import RetrievedOf, ScoredRange


@dataclass(frozen=True)
class UnionPlan:
    """One memory of recent positions and neighbours: one softmax over the entries of both.

    Cut-offs count what `long` reads, else neighbours; of the other part all is read.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), appendix A, equations 6-7.
    """

    reading: Reading
    recent: RecentPlan
    external: ExternalPlan

    @property
    def parts(self) -> tuple[RecentPlan, ExternalPlan]:
        """The memories that it joins."""
        return self.recent, self.external

    @property
    def _by_size(self) -> bool:
        return "long" in self.reading.sources

    @property
    def size_name(self) -> str:
        """What its cut-offs count."""
        return self.recent.size_name if self._by_size else self.external.size_name

    @property
    def distinction(self) -> str:
        """What scores of neighbours are made of, where that can differ."""
        return self.external.distinction

    @property
    def details(self) -> dict[str, Any]:
        """What else a report tells of the reading."""
        neighbors = {self.external.size_name: self.external.k} if self._by_size else {}
        return self.recent.details | self.external.details | neighbors

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Sizes, or numbers of neighbours, to choose from."""
        return self.recent.cutoffs if self._by_size else self.external.cutoffs

    @property
    def positions_at_once(self) -> int:
        return min(part.positions_at_once for part in self.parts)

    @property
    def by_window(self) -> bool:
        """Whether positions of two windows must not be read together."""
        return self.recent.by_window

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """What a range's tokens read: the positions before each, and their neighbours."""
        recent, external = (part.retrieve(scored_range) for part in self.parts)

        def of(part: slice) -> Retrieved:
            if self._by_size:
                return recent(part).beside(external(part).fixed(self.external.k))
            return recent(part).fixed(self.recent.width).beside(external(part))

        return of

    def narrowed(self, cutoff: int) -> "UnionPlan":
        """The plan that computes no more entries of the past than a chosen size reads."""
        return replace(self, recent=self.recent.narrowed(cutoff)) if self._by_size else self

    def spread(self, sample: list[ScoredRange]) -> float:
        """What default temperatures are measured in: the larger of the parts' spreads."""
        return max(part.spread(sample) for part in self.parts)

    def grid(self, spread: float, alone: bool) -> ReadingGrid:
        """What the reading may be set to; default temperatures are fractions of the `spread` of a sample."""
        if self._by_size:
            return reading_grid(self.reading, default_scales(spread), self.cutoffs)
        return self.external.grid(spread, alone)
