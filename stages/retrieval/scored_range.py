"""A range of a split with the inputs of readings of memory, and the entries that its positions
retrieve.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import Places
from stages.encoding.scoring import LMScores
from stages.memory.entries import (
    Entries,
    LogSums,
    Matches,
    StoredTokens,
    find_matches,
    first_match,
    join_log_sums,
    log_sums_of_stored_tokens,
    target_log_sums,
)
from stages.retrieval.neighbors import FoundNeighbors
from stages.search.distances import exact_distances
from stages.search.keys import StoredKeys


class MatchedEntries(NamedTuple):
    """Entries of one kind, with a mark for those that hold the target.

    `reads`: number of entries read at any cut-off; None: the cut-off decides. `ids`, int64 [n, k]:
        rows of the entries, -1 if missing; None: entry c of a position is the token c + 1 back from
        it. `role`: role of the artifact with these rows; empty: they are tokens of the split
        itself. `are_lengths`: whether scores are lengths of matches in tokens.
    """

    entries: Entries
    matches: Matches
    reads: int | None = None
    ids: Tensor | None = None
    role: str = "datastore"
    are_lengths: bool = False

    def log_sums(self, scales: Sequence[float], cutoffs: Sequence[int]) -> LogSums:
        """LogSums [S, C, n], or [S, 1, n] if cut-offs make no difference."""
        read_cutoffs = cutoffs if self.reads is None else [self.reads]
        return target_log_sums(self.entries, self.matches, scales, read_cutoffs)

    def scores_read(self, cutoff: int) -> Tensor:
        """Scores, float32 [n, k], of the entries that a cut-off reads; -inf for the others."""
        return self.entries.read(cutoff if self.reads is None else self.reads)

    def logits(self, scale: float, cutoff: int) -> Tensor:
        """Logs of the unnormalized weights of entries, [n, k]; -inf for entries that are not read."""
        scaled = _scaled(self.scores_read(cutoff), scale)
        counts = self.entries.counts
        return scaled if counts is None else scaled + counts.log()

    def select(self, rows: Tensor, targets: Tensor) -> "MatchedEntries":
        """The part for some of the positions."""
        entries = self.entries[rows]
        ids = None if self.ids is None else self.ids[rows]
        return self._replace(entries=entries, matches=find_matches(entries, targets), ids=ids)


def _scaled(scores: Tensor, scale: float) -> Tensor:
    """Scores times a scale; -inf stays."""
    # θ may be 0, and 0 · -inf is NaN.
    return torch.where(scores.isneginf(), scores, scores * scale)


@dataclass(frozen=True)
class Retrieved:
    """Entries that n positions retrieve; neighbours of a datastore are the last part."""

    parts: tuple[MatchedEntries, ...]

    def log_sums(self, scales: Sequence[float], cutoffs: Sequence[int]) -> LogSums:
        """LogSums [S, C, n] of the targets in all parts together, for every scale and cut-off."""
        return join_log_sums([part.log_sums(scales, cutoffs) for part in self.parts])

    def scored(self, cutoff: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Scores (-inf for entries that are not read) and tokens of the entries of all parts
        together, [n, k].
        """
        scores = torch.cat([part.scores_read(cutoff) for part in self.parts], -1)
        values = torch.cat([part.entries.values.long() for part in self.parts], -1)
        return _scaled(scores, scale), values

    def stored_tokens(self, rows: slice, scale: float, cutoff: int) -> StoredTokens:
        """Tokens held by the entries of all parts together, for some of the positions; see
        `log_sums_of_stored_tokens`.
        """
        scores = [part.scores_read(cutoff)[rows] for part in self.parts]
        values = torch.cat([part.entries.values[rows].long() for part in self.parts], -1)
        counts = [part.entries[rows].counts for part in self.parts]
        joined = Entries(torch.cat(scores, -1), values, counts=_counts_of_parts(scores, counts))
        return log_sums_of_stored_tokens(joined, scale, values.shape[1])

    def weights(self, scale: float, cutoff: int) -> list[Tensor]:
        """Softmax of the scores over the entries read in all parts, [n, k] each; zeros if none are
        read.
        """
        logits = [part.logits(scale, cutoff) for part in self.parts]
        weights = torch.cat(logits, -1).softmax(-1).nan_to_num(nan=0.0)
        return list(weights.split([scores.shape[1] for scores in logits], -1))

    def select(self, rows: Tensor, targets: Tensor) -> "Retrieved":
        """Select some of the positions; rows int64 [r], and their targets."""
        return Retrieved(tuple(part.select(rows, targets) for part in self.parts))

    def fixed(self, reads: int) -> "Retrieved":
        """The entries with a fixed number of them read in each part at any cut-off."""
        return Retrieved(tuple(part._replace(reads=reads) for part in self.parts))

    def concat(self, other: "Retrieved") -> "Retrieved":
        """Join with another memory, read as one."""
        return Retrieved(self.parts + other.parts)

    @property
    def first_matches(self) -> Tensor:
        """Index of the first entry in the last part that holds the target, int64 [n]; its number of
        entries if none.
        """
        last = self.parts[-1]
        return first_match(last.matches, *last.entries.scores.shape)


def _counts_of_parts(scores: Sequence[Tensor], counts: Sequence[Tensor | None]) -> Tensor | None:
    """Counts of several parts together, 1 for parts without counts; None if no part has any."""
    if all(part_counts is None for part_counts in counts):
        return None
    parts = []
    for part_scores, part_counts in zip(scores, counts, strict=True):
        parts.append(torch.ones_like(part_scores) if part_counts is None else part_counts)
    return torch.cat(parts, -1)


def retrieve(
    entries: Entries,
    targets: Tensor,
    ids: Tensor | None = None,
    role: str = "datastore",
    *,
    are_lengths: bool = False,
) -> Retrieved:
    """Entries of one kind with their matches; targets int [n]; other arguments as in
    `MatchedEntries`.
    """
    matches = find_matches(entries, targets)
    return Retrieved((MatchedEntries(entries, matches, None, ids, role, are_lengths),))


RetrievedOf = Callable[[slice], Retrieved]
"""Retrieves the entries of a few positions of a range."""


class StoredDistances:
    """Distances of the neighbours of a range from a datastore's keys.

    They are computed when a reading first asks for them, and kept for the other readings.
    """

    def __init__(self, neighbors: FoundNeighbors, queries: np.ndarray) -> None:
        self._neighbors = neighbors
        self._queries = queries
        self._computed: dict[tuple[str, int], Recomputed] = {}

    def nearest(self, keys: StoredKeys, metric: str, k: int) -> "Recomputed":
        """Distances [n, k] of the best neighbours."""
        comparison = (metric, k)
        if comparison not in self._computed:
            started = time.perf_counter()
            ids = np.ascontiguousarray(self._neighbors.ids[:, :k])
            distances = exact_distances(keys, self._queries, ids, metric)
            seconds = time.perf_counter() - started
            self._computed[comparison] = Recomputed(distances, seconds)
        return self._computed[comparison]


class Recomputed(NamedTuple):
    """Distances [n, k] from a datastore's keys, and the seconds that they took."""

    distances: np.ndarray
    seconds: float


@dataclass(frozen=True)
class ScoredRange:
    """n tokens scored by the model alone, with all inputs of their readings.

    `counted`: bool [n], the tokens that figures cover; None: all of them. `neighbors` and `queries`
        (float32 [n, d]) exist if a datastore is read. `context`, float [n, 3], exists if a weight
        needs it; `weights.learned.CONTEXT` names its columns.
    """

    lm: LMScores
    carried: CarriedState
    places: Places
    counted: Tensor | None = None
    neighbors: FoundNeighbors | None = None
    queries: np.ndarray | None = None
    context: Tensor | None = None
    split: str = ""
    """Name of the split of the range; empty: it is of no split."""
    side_hidden: Mapping[str, Tensor] = field(default_factory=dict)
    """Hidden states of the tokens by side models, [n, d], by the model's name."""

    @cached_property
    def stored_distances(self) -> "StoredDistances":
        """Distances of the neighbours from stored keys."""
        assert self.neighbors is not None and self.queries is not None
        return StoredDistances(self.neighbors, self.queries)

    def rows(self, part: slice) -> Tensor | slice:
        """The counted rows in a part of the range: indices, or the part itself if all are counted."""
        if self.counted is None:
            return part
        return self.counted[part].nonzero()[:, 0] + part.start

    @property
    def counted_rows(self) -> Tensor | slice:
        """All counted rows of the range."""
        return self.rows(slice(0, len(self.lm)))


CHUNK_ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 25}
"""Entries read at a time: few enough for a processor's cache, many enough to fill a GPU."""


def evenly(total: int, step: int, borders: Sequence[int]) -> list[slice]:
    """Parts of `total` rows, `step` at most, that cross no border.

    >>> evenly(7, 3, borders=[5])
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    inner_borders = [border for border in borders if 0 < border < total]
    edges = sorted({0, total, *inner_borders})
    parts = []
    for begin, end in pairwise(edges):
        for start in range(begin, end, step):
            parts.append(slice(start, min(start + step, end)))
    return parts
