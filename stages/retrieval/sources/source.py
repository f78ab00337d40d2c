"""The protocol of sources: what the tokens of a range read, what must be there for it; and several read as one."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Self, final

from stages.memory.hyperparameter import doubling_cutoffs
from stages.retrieval.grids import ReadingGrid, reading_grid
from stages.retrieval.neighbors import Datastore
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import CHUNK_ENTRIES, Retrieved, RetrievedOf, ScoredRange
from stages.retrieval.sources import SOURCES

if TYPE_CHECKING:
    from stages.suffixes.matches import SortedContexts


@dataclass(frozen=True)
class Needs:
    """Parts of a scored range that a source needs."""

    keys: frozenset[str] = frozenset()
    """Representations of the evaluated model: of the range, and of the past as far as `reach`."""
    reach: int = 0
    """Positions back from the one that reads."""
    window_keys: frozenset[str] = frozenset()
    """Representations of all inputs of a window, in every window; positions of two are then not read together."""
    neighbors: int = 0
    """Neighbours in the datastore."""
    exact: frozenset[tuple[str, int]] = frozenset()
    """Distances computed from the stored keys: metric, and number of neighbours. They take search keys."""
    context: bool = False
    """Whether a weight reads `ScoredRange.context`: the model's confidence and entropy, and the token before."""

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            self.keys | other.keys,
            max(self.reach, other.reach),
            self.window_keys | other.window_keys,
            max(self.neighbors, other.neighbors),
            self.exact | other.exact,
            self.context or other.context,
        )

    @classmethod
    def of_all(cls, needs: "Iterable[Needs]") -> "Needs":
        """The union of several needs."""
        return reduce(cls.__or__, needs, cls())


@dataclass(frozen=True)
class SourceInputs:
    """Inputs that sources are opened with."""

    context: int
    """Inputs of a window."""
    overlapping: bool
    """Whether windows overlap, so that a position has another representation in each."""
    device: str = "cpu"
    """Type of the device that memory is read on."""
    datastore: Datastore | None = None
    contexts: "SortedContexts | None" = None
    """Sorted, for exact matches; None: none are read."""
    vocabulary: int = 2**31


@dataclass(frozen=True)
class About:
    """Description of a source in tables."""

    amount: str
    """The amount that cut-offs count: a key of the reading, or another name of its settings."""
    doubling: bool = False
    """Whether a curve over the amount goes through all doubling numbers."""
    distinction: str = ""
    """Suffix of its row's name, which tells other ways to score the same entries."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """More details for the report; JSON."""
    compared_with: Reading | None = None
    """The reading that a lone reading is shown next to: the same memory, scored otherwise."""


class Source(ABC):
    """The memory of one reading, all selected but what the grid decides."""

    reading: Reading
    """The requested reading, completed."""
    device: str
    """Type of the device that it is read on."""

    @property
    @abstractmethod
    def about(self) -> About:
        """Description in tables."""

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """Requirements of `retrieve`."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Numbers of entries to choose from, rising."""
        return tuple(sorted(set(self.reading.value(self.about.amount))))

    @property
    def width(self) -> int:
        """The most entries that a position may read."""
        return self.cutoffs[-1]

    @property
    def positions_at_once(self) -> int:
        """Positions whose entries fit into memory together."""
        return max(1, CHUNK_ENTRIES[self.device] // self.width)

    @abstractmethod
    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve entries for a range's tokens, for a part of them at a time: no position reads itself or its
        future."""

    def narrowed(self, cutoff: int) -> Self:
        """The same, which computes no more than a chosen cut-off reads; itself where that saves nothing."""
        return self

    @abstractmethod
    def spread(self, sample: list[ScoredRange]) -> float:
        """Unit of default factors of scores, measured in a sample of the tuning split; positive."""

    @abstractmethod
    def default_scales(self, spread: float) -> tuple[float, ...]:
        """Factors of scores, 1/τ or θ, that `tune` tries."""

    @final
    def grid(self, spread: float, alone: bool) -> ReadingGrid:
        """The grid of the reading's settings.

        Args:
            spread: of a sample; default factors are measured in it.
            alone: whether no other reading is on top or below: with cut-offs for a curve beside those to choose from.
        """
        more = doubling_cutoffs(self.cutoffs[-1]) if alone and self.about.doubling else ()
        return reading_grid(self.reading, self.default_scales(spread), tuple(sorted({*self.cutoffs, *more})))


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
        """Default scales of the last part: a datastore's, where one is read."""
        return self.parts[-1].default_scales(spread)
