"""A range of a split as readings of memory see it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import Places
from stages.encoding.scoring import LMScores
from stages.retrieval.neighbors import FoundNeighbors
from stages.retrieval.retrieved import Retrieved
from stages.search.distances import exact_distances
from stages.search.keys import StoredKeys

RetrievedOf = Callable[[slice], Retrieved]
"""Retrieves the entries of a few positions of a range."""


class Recomputed(NamedTuple):
    """Distances [n, k] from a datastore's keys, and the seconds that they took."""

    distances: np.ndarray
    seconds: float


@dataclass(frozen=True)
class ScoredRange:
    """n tokens scored by the model alone, with all that their readings look at.

    `counted`: bool [n], tokens that the figures are about; None: all of them. `found` and `queries`
    (float32 [n, d]) are there where a datastore is read; `context` float [n, 3], as `weight_inputs.CONTEXT`
    says, where a weight is learned.
    """

    lm: LMScores
    carried: CarriedState
    places: Places
    counted: Tensor | None = None
    found: FoundNeighbors | None = None
    queries: np.ndarray | None = None
    context: Tensor | None = None
    forbidden: np.ndarray | None = None
    """Rows of an exact index's text that each token may not find, int64 [n, 2]: first <= row < last; None: none."""
    recomputed: dict[tuple[str, int], Recomputed] = field(default_factory=dict, repr=False)
    """Distances that were computed from stored keys, by metric and number of neighbours."""

    def exact_distances(self, keys: StoredKeys, metric: str, k: int) -> Recomputed:
        """Distances [n, k] of the best neighbours from a datastore's keys, computed once for all readings."""
        if (metric, k) not in self.recomputed:
            assert self.found is not None and self.queries is not None
            started = time.perf_counter()
            ids = np.ascontiguousarray(self.found.ids[:, :k])
            distances = exact_distances(keys, self.queries, ids, metric)
            self.recomputed[metric, k] = Recomputed(distances, time.perf_counter() - started)
        return self.recomputed[metric, k]

    def rows(self, part: slice) -> Tensor | slice:
        """Which of the range's rows are counted in a part of it: indices, or the part itself for all."""
        if self.counted is None:
            return part
        return self.counted[part].nonzero()[:, 0] + part.start

    @property
    def counted_rows(self) -> Tensor | slice:
        """All counted rows of the range."""
        return self.rows(slice(0, len(self.lm)))


CHUNK_ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 25}
"""Entries read at a time: few enough to stay near a processor, many enough to fill a GPU."""


def evenly(total: int, step: int, borders: Sequence[int]) -> list[slice]:
    """Parts of `total` rows, `step` at most, that cross no border."""
    edges = sorted({0, total, *(border for border in borders if 0 < border < total)})
    return [slice(a, min(a + step, end)) for begin, end in pairwise(edges) for a in range(begin, end, step)]
