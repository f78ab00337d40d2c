"""Entries that positions retrieve from a memory, in parts that are read as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stages.memory.entries import (
    Entries,
    LogSums,
    Matches,
    dense_log_sums,
    find_matches,
    first_match,
    joined,
    target_log_sums,
)


class MatchedEntries(NamedTuple):
    """Entries of one kind, and those of them that hold the target.

    `reads`: so many of them are read whatever the cut-off; None: as many as the cut-off says.
    `ids` int64 [n, k]: rows that the entries are, -1 where missing; None: entry c of a position is the token c + 1 back
    from it. `role`: of the artifact that the rows are of; empty: they are tokens of the split itself.
    """

    entries: Entries
    matches: Matches
    reads: int | None = None
    ids: Tensor | None = None
    role: str = "datastore"

    def log_sums(self, scales: Sequence[float], cutoffs: Sequence[int]) -> LogSums:
        """LogSums [S, C, n], or [S, 1, n] where no cut-off matters."""
        return target_log_sums(self.entries, self.matches, scales, cutoffs if self.reads is None else [self.reads])

    def dense(self, rows: slice, scale: float, cutoff: int, vocabulary: int) -> LogSums:
        """LogSums of every token for some of the positions, [r, V]; see `dense_log_sums`."""
        return dense_log_sums(self.entries[rows], scale, cutoff if self.reads is None else self.reads, vocabulary)

    def scores_read(self, cutoff: int) -> Tensor:
        """Scores float32 [n, k] of the entries that a cut-off reads; -inf of the others."""
        entries, reads = self.entries, cutoff if self.reads is None else self.reads
        reach = reads if entries.least is None else entries.least.clamp(min=reads)[:, None]
        places = torch.arange(entries.scores.shape[1], device=entries.scores.device)
        return entries.scores.float().masked_fill(places >= reach, -torch.inf)

    def taken(self, rows: Tensor, targets: Tensor) -> "MatchedEntries":
        """The part for some of the positions."""
        entries = self.entries[rows]
        ids = None if self.ids is None else self.ids[rows]
        return MatchedEntries(entries, find_matches(entries, targets), self.reads, ids, self.role)


@dataclass(frozen=True)
class Retrieved:
    """Entries that n positions retrieve; neighbours of a datastore are the last part."""

    parts: tuple[MatchedEntries, ...]

    def log_sums(self, scales: Sequence[float], cutoffs: Sequence[int]) -> LogSums:
        """LogSums [S, C, n] of the targets in all parts together, for every scale and cut-off."""
        return joined([part.log_sums(scales, cutoffs) for part in self.parts])

    def dense(self, rows: slice, scale: float, cutoff: int, vocabulary: int) -> LogSums:
        """LogSums of every token in all parts together, for some of the positions, [r, V]."""
        return joined([part.dense(rows, scale, cutoff, vocabulary) for part in self.parts])

    def weights(self, scale: float, cutoff: int) -> list[Tensor]:
        """Softmax of the scores over the entries of all parts that are read, [n, k] each; zeros where none are."""
        scores = [part.scores_read(cutoff) for part in self.parts]
        joined = torch.cat(scores, -1)
        scaled = torch.where(joined.isneginf(), joined, joined * scale)
        return list(scaled.softmax(-1).nan_to_num(nan=0.0).split([one.shape[1] for one in scores], -1))

    def taken(self, rows: Tensor, targets: Tensor) -> "Retrieved":
        """Select some of the positions; rows int64 [r], and their targets."""
        return Retrieved(tuple(part.taken(rows, targets) for part in self.parts))

    def fixed(self, reads: int) -> "Retrieved":
        """The same, of which so many entries a part are read whatever the cut-off."""
        return Retrieved(tuple(part._replace(reads=reads) for part in self.parts))

    def beside(self, other: "Retrieved") -> "Retrieved":
        """Join with another memory, read as one."""
        return Retrieved(self.parts + other.parts)

    @property
    def first_matches(self) -> Tensor:
        """Place of the first entry of the last part that is right, int64 [n]; its number of entries where none is."""
        last = self.parts[-1]
        return first_match(last.matches, *last.entries.scores.shape)


def retrieve(entries: Entries, targets: Tensor, ids: Tensor | None = None, role: str = "datastore") -> Retrieved:
    """Entries of one kind with their matches; targets int [n]; `ids` and `role` as in `MatchedEntries`."""
    return Retrieved((MatchedEntries(entries, find_matches(entries, targets), ids=ids, role=role),))
