"""Sources of one reading that are read as one memory."""

from dataclasses import dataclass, replace
from typing import Self

from stages.retrieval.reading import Reading
from stages.retrieval.retrieved import Retrieved
from stages.retrieval.scored_range import RetrievedOf, ScoredRange
from stages.retrieval.sources import SOURCES
from stages.retrieval.sources.source import About, Needs, Source, SourceInputs


def open_source(reading: Reading, inputs: SourceInputs) -> Source:
    """The memory of a completed reading."""
    openers = dict.fromkeys(map(SOURCES.load, reading.sources))
    parts = tuple(opener(reading, inputs) for opener in openers)
    return parts[0] if len(parts) == 1 else UnionSource(reading, parts)


@dataclass(frozen=True)
class UnionSource(Source):
    """One softmax over the entries of several memories.

    Cut-offs count what the first of them reads that is given how much; of the others all is read.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), appendix A, equations 6-7.
    """

    reading: Reading
    parts: tuple[Source, ...]

    @property
    def _leader(self) -> Source:
        """The part that cut-offs are of."""
        return next(iter(self._sized), self.parts[0])

    @property
    def _sized(self) -> list[Source]:
        """The parts of which the reading says how much is read."""
        return [part for part in self.parts if part.about.amount in self.reading.tunable]

    @property
    def about(self) -> About:
        """Descriptions of the parts, and how much is read of those that do not lead."""
        leader, abouts = self._leader.about, [part.about for part in self.parts]
        details = {name: value for about in abouts for name, value in about.details.items()}
        return About(
            leader.amount,
            leader.doubling,
            "".join(about.distinction for about in abouts),
            details | {part.about.amount: part.cutoffs[-1] for part in self._sized if part is not self._leader},
            next((about.compared_with for about in abouts if about.compared_with is not None), None),
        )

    @property
    def needs(self) -> Needs:
        return Needs.of_all(part.needs for part in self.parts)

    @property
    def cutoffs(self) -> tuple[int, ...]:
        return self._leader.cutoffs

    @property
    def positions_at_once(self) -> int:
        return min(part.positions_at_once for part in self.parts)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve entries of all parts, in their order."""
        leader, found = self._leader, [(part, part.retrieve(scored_range)) for part in self.parts]

        def of(rows: slice) -> Retrieved:
            first, *others = (
                held(rows) if part is leader else held(rows).fixed(part.cutoffs[-1]) for part, held in found
            )
            for other in others:
                first = first.beside(other)
            return first

        return of

    def narrowed(self, cutoff: int) -> Self:
        leader = self._leader
        return replace(self, parts=tuple(p.narrowed(cutoff) if p is leader else p for p in self.parts))

    def spread(self, sample: list[ScoredRange]) -> float:
        """The largest of the parts' spreads."""
        return max(part.spread(sample) for part in self.parts)

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """Those of the last part: a datastore's, where one is read."""
        return self.parts[-1].default_scales(spread)
