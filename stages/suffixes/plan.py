"""Division of the sorting of contexts into parts of four phases."""

from dataclasses import dataclass

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.stage import Shard, ShardPlan
from stages.suffixes.shards import DocumentRanges, KeptDocuments

KEEP = "keep"
CUT = "cut"
SORT = "sort"
WRITE = "write"
"""Phases: copy the order of kept documents, group the other contexts by shard, sort each shard, and
write the arrays.

Kept documents are those of the previous index, and small texts are not cut.
"""


@dataclass(frozen=True)
class ContextPart(Shard):
    """One of a phase's parts, by `number`; CUT groups `contexts`, of those to be sorted."""

    number: int = 0
    contexts: range = range(0)


@dataclass(frozen=True)
class ContextPlan(ShardPlan[ContextPart]):
    """The arrays, both [rows], and the work.

    `sorted`: tokens to sort. `stay`: documents that the previous index has, None without one.
    """

    order: ArrayLayout
    shared: ArrayLayout
    sorted: DocumentRanges
    stay: KeptDocuments | None

    def parts(self, phase: str) -> list[ContextPart]:
        """The parts of one phase, by number."""
        return [part for part in self.shards if part.phase == phase]
