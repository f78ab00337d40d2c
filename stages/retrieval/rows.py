"""Rows of the report's table: readings of memory on top of the model, one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from stages.retrieval.grammar import composition_name
from stages.retrieval.grids import ReadingGrid
from stages.retrieval.reading import Reading
from stages.retrieval.retrieved import Retrieved
from stages.retrieval.scored_range import RetrievedOf, ScoredRange, evenly

P = TypeVar("P")


class Plan(Protocol):
    """One reading, all selected but what the grid decides; a kind of source has its own, a union joins two."""

    @property
    def reading(self) -> Reading:
        """What the user asked for, completed."""

    @property
    def distinction(self) -> str:
        """What stands behind the name, to tell other ways to score the same entries; empty for most."""

    @property
    def parts(self) -> "tuple[Plan, ...]":
        """The plans of each kind of memory that it joins; itself if it is of one."""

    @property
    def size_name(self) -> str:
        """What its cut-offs count: `k` neighbours, `size` positions, or those of a `window`."""

    @property
    def details(self) -> dict[str, Any]:
        """What else a report tells of the reading."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Numbers of entries to choose from."""

    @property
    def positions_at_once(self) -> int:
        """Positions whose entries are in memory together."""

    @property
    def by_window(self) -> bool:
        """Whether positions of two windows must not be read together."""

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """What the tokens of a range read."""

    def narrowed(self, cutoff: int) -> "Plan":
        """The plan that holds no more of the past than a chosen cut-off reads."""

    def spread(self, sample: list[ScoredRange]) -> float:
        """What the default factors of scores are measured in, from a sample of the tuning split."""

    def grid(self, spread: float, alone: bool) -> ReadingGrid:
        """What the reading may be set to; `alone`: with more cut-offs, for a curve."""


@dataclass(frozen=True)
class MemoryRow:
    """One row: readings in their order."""

    plans: tuple[Plan, ...]
    trained: bool = False
    """Whether the model was trained with memory."""
    distinction: str = ""
    """What stands behind the name where another row has the same."""

    @property
    def name(self) -> str:
        """Short, for a table."""
        named = composition_name([(plan.reading.sources, plan.reading.reader) for plan in self.plans], self.trained)
        if named is None or len(self.plans) == 1:
            names = (plan.reading.name(self.trained) + plan.distinction for plan in self.plans)
            return " then ".join(names) + self.distinction
        return named + "".join(dict.fromkeys(plan.distinction for plan in self.plans)) + self.distinction

    def parts(self, kind: type[P]) -> list[P]:
        """What it reads of one kind of memory."""
        return [part for plan in self.plans for part in plan.parts if isinstance(part, kind)]

    def narrowed(self, cutoffs: Sequence[int]) -> "MemoryRow":
        """The row that holds no more of the past than each reading's chosen cut-off reads."""
        plans = (plan.narrowed(cutoff) for plan, cutoff in zip(self.plans, cutoffs, strict=True))
        return replace(self, plans=tuple(plans))

    def grids(self, spreads: Sequence[float]) -> list[ReadingGrid]:
        """The grid of each reading; a lone reading's also serves the curve over entries read."""
        alone = len(self.plans) == 1
        return [plan.grid(spread, alone) for plan, spread in zip(self.plans, spreads, strict=True)]

    def retrieve(self, scored_range: ScoredRange) -> Iterator[tuple[Tensor | slice, list[Retrieved]]]:
        """What each reading gives the counted tokens, for a few rows of the range at a time."""
        found = [plan.retrieve(scored_range) for plan in self.plans]
        borders = [w.scored_from - scored_range.lm.start for w in scored_range.places.windows]
        step = min(plan.positions_at_once for plan in self.plans)
        separate = any(plan.by_window for plan in self.plans)
        for part in evenly(len(scored_range.lm), step, borders if separate else []):
            rows = scored_range.rows(part)
            if isinstance(rows, Tensor) and not len(rows):
                continue
            retrieved = [of(part) for of in found]
            if isinstance(rows, Tensor):
                retrieved = [one.taken(rows - part.start, scored_range.lm.targets[rows]) for one in retrieved]
            yield rows, retrieved
