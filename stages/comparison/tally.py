"""Sums of two log-probabilities of the same tokens by group and by unit, and the tokens won and lost most."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.errors import ArtifactError
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.token_scores import TokenScores
from stages.reporting import Progress, unheard

FIRST_RANGE = 16
"""Tokens in the first range of positions; every further range is twice as long, so that its end doubles."""


class PairedTokens(NamedTuple):
    """n scored tokens, in the order of the split; NLL of both in nats, float64 [n]."""

    units: np.ndarray
    """int64 [n]: the document or block that each lies in."""
    nll_a: np.ndarray
    nll_b: np.ndarray


@dataclass(frozen=True)
class Group:
    """Figures of a group of tokens; means in nats a token."""

    tokens: int
    nll_a: float
    nll_b: float
    won: int
    """Tokens that B gives more probability than A."""
    lost: int
    interval: tuple[float, float] | None
    """Interval of the difference of the two means; None where a single unit has such tokens."""

    @property
    def difference(self) -> float:
        """Mean NLL of B minus that of A."""
        return self.nll_b - self.nll_a


@dataclass(frozen=True)
class Tally:
    """Sums by unit and group, [5, U, G]: tokens, nats of A and of B, tokens won and lost."""

    sums: np.ndarray

    @classmethod
    def of(cls, pairs: PairedTokens, units: int, groups: np.ndarray, count: int) -> "Tally":
        """Add up tokens of U units; `groups` int64 [n] is the group of each, of `count`."""
        cells, (_, a, b) = pairs.units * count + groups, pairs
        columns = (None, a, b, b < a, b > a)
        return cls(np.array([np.bincount(cells, one, units * count).reshape(units, count) for one in columns]))

    @property
    def totals(self) -> np.ndarray:
        """Differences summed over each unit's tokens of each group, nats, [U, G]."""
        differences: np.ndarray = self.sums[2] - self.sums[1]
        return differences

    def groups(self, bootstrap: Bootstrap, progress: Progress = unheard) -> list[Group | None]:
        """Figures of each group, all intervals from the same draws; None for groups without tokens."""
        weights = self.sums[0]
        held = weights.any(axis=1)
        intervals = bootstrap.intervals(self.totals[held], weights[held], progress)
        sums = self.sums.sum(axis=1).T
        return [_group(row, interval) if row[0] else None for row, interval in zip(sums, intervals, strict=True)]


def _group(sums: np.ndarray, interval: tuple[float, float] | None) -> Group:
    tokens, nll_a, nll_b, won, lost = sums.tolist()
    return Group(int(tokens), nll_a / tokens, nll_b / tokens, int(won), int(lost), interval)


def position_range(positions: np.ndarray) -> np.ndarray:
    """In which range of positions each token is, int64 [n]: 0 … 15, 16 … 31, 32 … 63 and so on, doubling.

    Args:
        positions: tokens of the document before each, int64 [n].
    """
    return np.frexp(positions // FIRST_RANGE)[1].astype(np.int64)


def range_bounds(number: int) -> tuple[int, int]:
    """The positions [start, stop) of a range."""
    return (FIRST_RANGE << number) >> 1 if number else 0, FIRST_RANGE << number


def largest(values: np.ndarray, most: int) -> np.ndarray:
    """The rows with the largest values above 0, int64; of equal ones, those that came first.

    >>> largest(np.array([0.5, -1.0, 2.0, 0.5]), most=2).tolist()
    [2, 0]
    """
    above = np.flatnonzero(values > 0)
    return above[np.argsort(-values[above], kind="stable")[:most]]


def same_targets(a: TokenScores, b: TokenScores) -> np.ndarray:
    """The scored tokens of both reports, int32 [n]. Raises: ArtifactError if they are not the same."""
    of_a, of_b = (np.asarray(scores.targets[:]) for scores in (a, b))
    other = np.flatnonzero(of_a != of_b)
    if len(other):
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} score other tokens, from scored token {int(other[0])} of "
            f"{a.split} on; make both again: memlm evaluate … --save-token-scores"
        )
    return of_a
