"""Which entries of memory a prediction was read from, and how much of the final distribution each one carried.

Shapes: n positions, k entries a position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stages.retrieval.scored_range import MatchedEntries, ScoredRange
from stages.retrieval.weights.policy import Shares as OfReading
from stages.retrieval.weights.policy import WeightPolicy


@dataclass(frozen=True)
class ReadEntries:
    """Entries of one kind that n positions read in one of the readings.

    `places` int64 [n, k]: rows of the artifact of a `role`, or, where that is empty, positions of the text itself; -1
    where missing.
    `values` int64 [n, k]: the tokens that they hold, -1 where missing.
    `weights` float [n, k]: shares of the reading's memory; those of all its kinds together sum to 1.
    `carried` float [n, k]: shares of the final distribution: what each adds to the probability of its token.
    """

    reading: int
    role: str
    places: Tensor
    values: Tensor
    weights: Tensor
    carried: Tensor
    matched: Tensor | None = None
    """Tokens that the context of each entry shares, [n, k]; None: representations are compared."""


@dataclass(frozen=True)
class Shares:
    """Shares of the final distributions: `model` [n] and `memories` [n, readings], which sum to 1."""

    model: Tensor
    memories: Tensor


def read_entries(policy: WeightPolicy, scored_range: ScoredRange) -> Iterator[tuple[Shares, list[ReadEntries]]]:
    """The entries of a range, for a few positions at a time, in order.

    Args:
        policy: the readings, and the numbers they are read with.
        scored_range: the range; all of its tokens count.
    """
    for rows, retrieved in policy.reading_row.retrieve(scored_range):
        places = torch.arange(len(scored_range.lm), device=scored_range.lm.log_z.device)[rows]
        of_readings = policy.shares(scored_range, rows, retrieved)
        shares = _shares(of_readings)
        entries = []
        for number, one in enumerate(retrieved):
            for part, weight in zip(one.parts, of_readings[number].entries, strict=True):
                where = _positions(part, scored_range, places) if part.ids is None else part.ids
                values = part.entries.values.long()
                carried = weight * shares.memories[:, number, None]
                role, matched = "" if part.ids is None else part.role, None
                if part.ids is not None and role != "datastore":
                    matched = part.entries.scores
                entries.append(ReadEntries(number, role, where, values, weight, carried, matched))
        yield shares, entries


def _shares(each: Sequence[OfReading]) -> Shares:
    """How much of the final distribution the model and each reading's memory make up."""
    left = torch.ones_like(each[0].kept)
    memories = []
    for one in reversed(each):
        memories.append((1 - one.kept) * left)
        left = left * one.kept
    return Shares(left, torch.stack(memories[::-1], -1))


def _positions(part: MatchedEntries, scored_range: ScoredRange, places: Tensor) -> Tensor:
    """Positions of the split that recent entries are of, int64 [n, k]: the nearest first; -1 where missing."""
    values = part.entries.values
    own = scored_range.lm.start + places[:, None]
    back = 1 + torch.arange(values.shape[1], device=values.device)
    return torch.where(values >= 0, own - back, -1)
