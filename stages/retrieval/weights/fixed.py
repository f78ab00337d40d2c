"""Weights as they are given: nothing is tuned."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.retrieval.grids import best_point
from stages.retrieval.weights.policy import Choice, WeightPolicy


@dataclass(frozen=True)
class Fixed(WeightPolicy):
    """One number for each setting of every reading."""

    with_curve: bool = True
    """Whether a lone reading is read with every cut-off of its grid."""

    @cached_property
    def chosen(self) -> Choice:
        even = np.zeros([n for grid in self.grids for n in grid.shape])
        cutoffs = self.grids[0].cutoffs if self.with_curve and len(self.grids) == 1 else ()
        by_cutoff = [best_point(even, self.grids, [(cutoff,)]).indices for cutoff in cutoffs]
        return Choice(best_point(even, self.grids, self.allowed).indices, by_cutoff)
