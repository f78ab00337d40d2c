"""What positions recall of a memory: its cells, in parts that are read as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from stages.memory.cells import Cells, Hits, Masses, dense_masses, find_hits, first_hit, joined, target_masses


class Part(NamedTuple):
    """Cells of one kind, and those of them that hold the target.

    `reads`: so many of them are read whatever the cut-off; None: as many as the cut-off says.
    """

    cells: Cells
    hits: Hits
    reads: int | None = None

    def masses(self, scales: Sequence[float], cutoffs: Sequence[int]) -> Masses:
        """Masses [S, C, n], or [S, 1, n] where no cut-off matters."""
        return target_masses(self.cells, self.hits, scales, cutoffs if self.reads is None else [self.reads])

    def dense(self, rows: slice, scale: float, cutoff: int, vocabulary: int) -> Masses:
        """Masses of every token for some of the positions, [r, V]; see `dense_masses`."""
        return dense_masses(self.cells[rows], scale, cutoff if self.reads is None else self.reads, vocabulary)

    def taken(self, rows: Tensor, targets: Tensor) -> "Part":
        """The part for some of the positions."""
        cells = self.cells[rows]
        return Part(cells, find_hits(cells, targets), self.reads)


@dataclass(frozen=True)
class Recalled:
    """What n positions recall; neighbours of a datastore are the last part."""

    parts: tuple[Part, ...]

    def masses(self, scales: Sequence[float], cutoffs: Sequence[int]) -> Masses:
        """Masses [S, C, n] of the targets in all parts together, for every scale and cut-off."""
        return joined([part.masses(scales, cutoffs) for part in self.parts])

    def dense(self, rows: slice, scale: float, cutoff: int, vocabulary: int) -> Masses:
        """Masses of every token in all parts together, for some of the positions, [r, V]."""
        return joined([part.dense(rows, scale, cutoff, vocabulary) for part in self.parts])

    def taken(self, rows: Tensor, targets: Tensor) -> "Recalled":
        """What some of the positions recall; rows int64 [r], and their targets."""
        return Recalled(tuple(part.taken(rows, targets) for part in self.parts))

    def fixed(self, reads: int) -> "Recalled":
        """The same, of which so many cells a part are read whatever the cut-off."""
        return Recalled(tuple(part._replace(reads=reads) for part in self.parts))

    def beside(self, other: "Recalled") -> "Recalled":
        """What both hold, read as one memory."""
        return Recalled(self.parts + other.parts)

    @property
    def first_hits(self) -> Tensor:
        """Place of the first cell of the last part that is right, int64 [n]; its number of cells where none is."""
        last = self.parts[-1]
        return first_hit(last.hits, *last.cells.scores.shape)


def recall(cells: Cells, targets: Tensor) -> Recalled:
    """Cells of one kind with their hits; targets int [n]."""
    return Recalled((Part(cells, find_hits(cells, targets)),))
