"""Sums of two log-probabilities of the same tokens by group and by unit, and the tokens won and lost most."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.errors import ArtifactError
from stages.evaluation.figures.frequency import BOUNDS, Frequencies
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.places import Units
from stages.evaluation.figures.token_scores import TokenScores
from stages.reporting import Progress, unheard

FIRST_RANGE = 16
"""Tokens in the first range of positions; every further range is twice as long, so that its end doubles."""


@dataclass(frozen=True)
class PairedTokens:
    """n scored tokens, in the order of the split."""

    units: np.ndarray
    """int64 [n], ascending: the document or block that each lies in."""
    nll_a: np.ndarray
    """float64 [n], nats."""
    nll_b: np.ndarray

    @property
    def difference(self) -> np.ndarray:
        """NLL of B minus that of A, [n]: negative where B gives the token more probability."""
        return self.nll_b - self.nll_a


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


class Tally:
    """Sums over tokens that come block by block, in one group each of G, for each of U units."""

    def __init__(self, units: int, groups: int) -> None:
        self._sums = np.zeros((5, units, groups))

    def add(self, pairs: PairedTokens, groups: np.ndarray) -> None:
        """Take some tokens in; `groups` int64 [n] is the group of each."""
        if not len(groups):
            return
        first, stop, width = int(pairs.units[0]), int(pairs.units[-1]) + 1, self._sums.shape[2]
        cells = (pairs.units - first) * width + groups
        won, lost = pairs.nll_b < pairs.nll_a, pairs.nll_b > pairs.nll_a
        for place, values in enumerate((None, pairs.nll_a, pairs.nll_b, won, lost)):
            sums = np.bincount(cells, values, (stop - first) * width)
            self._sums[place, first:stop] += sums.reshape(-1, width)

    @property
    def totals(self) -> np.ndarray:
        """Differences summed over each unit's tokens of each group, nats, [U, G]."""
        return self._sums[2] - self._sums[1]

    @property
    def weights(self) -> np.ndarray:
        """Tokens of each unit in each group, [U, G]."""
        return self._sums[0]

    def groups(self, bootstrap: Bootstrap, progress: Progress = unheard) -> list[Group | None]:
        """Figures of each group; None for groups without tokens."""
        held = np.flatnonzero(self.weights.any(axis=1))
        intervals = bootstrap.intervals(self.totals[held], self.weights[held], progress)
        sums = self._sums.sum(axis=1).T
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


class TopTokens:
    """The rows with the largest values above 0; of equal ones, those that came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = np.empty(0, np.int64)
        self._values = np.empty(0)

    def add(self, start: int, values: np.ndarray) -> None:
        """Look at the values [n] of rows start, start + 1, …"""
        above = np.flatnonzero(values > 0)
        if len(above) > self._most:
            least = np.partition(values[above], -max(self._most, 1))[-max(self._most, 1)]
            above = above[values[above] >= least]
        rows = np.concatenate([self.rows, start + above])
        kept = np.concatenate([self._values, values[above]])
        order = np.argsort(-kept, kind="stable")[: self._most]
        self.rows, self._values = rows[order], kept[order]


BUCKETS = len(BOUNDS) + 1
_FIRST_BUCKET, _FIRST_RANGE = 1, 1 + BUCKETS


class Groups(NamedTuple):
    """Figures of groups of tokens; None for groups without tokens."""

    all: Group | None
    buckets: list[Group | None]
    """By frequency; as numbered in `stages.evaluation.figures.frequency`."""
    ranges: list[Group | None]
    """By position in the document; as numbered in `stages.comparison.tally`."""


class TokenSums:
    """Sums of two log-probabilities of tokens that come block by block, each in three groups: all, bucket, range."""

    def __init__(self, units: Units, frequencies: Frequencies | None, most: int) -> None:
        ranges = int(position_range(np.diff(units.places.doc_offsets)).max()) + 1
        self.tally = Tally(units.count, _FIRST_RANGE + ranges)
        self.won, self.lost = TopTokens(most), TopTokens(most)
        self._units, self._frequencies = units, frequencies

    def add(self, start: int, nll_a: np.ndarray, nll_b: np.ndarray, targets: np.ndarray) -> None:
        """Take in scored tokens start, start + 1, …: their NLL in nats, float64 [n], and ids, int [n]."""
        places = self._units.places
        at = places.read(start, start + len(targets))
        pairs = PairedTokens(self._units.of(at), nll_a, nll_b)
        self.tally.add(pairs, np.zeros(len(at), np.int64))
        if self._frequencies is not None:
            self.tally.add(pairs, _FIRST_BUCKET + self._frequencies.bucket_of[targets])
        self.tally.add(pairs, _FIRST_RANGE + position_range(places.positions(at)))
        self.won.add(start, -pairs.difference)
        self.lost.add(start, pairs.difference)

    def groups(self, bootstrap: Bootstrap, progress: Progress = unheard) -> Groups:
        """Figures of every group, all intervals from the same draws."""
        found = self.tally.groups(bootstrap, progress)
        return Groups(found[0], found[_FIRST_BUCKET:_FIRST_RANGE], found[_FIRST_RANGE:])


def read_sums(
    a: TokenScores,
    b: TokenScores,
    units: Units,
    frequencies: Frequencies | None,
    most: int,
    progress: Progress = unheard,
) -> TokenSums:
    """Read both reports once, a bounded number of tokens at a time.

    Raises: ArtifactError if they turn out not to hold scores of the same tokens, or some that are not finite.
    """
    sums = TokenSums(units, frequencies, most)
    for start, stop in units.places.blocks():
        sums.add(start, a.nll(start, stop), b.nll(start, stop), _targets(a, b, start, stop))
        progress(stop, len(units.places), "tokens compared")
    return sums


def _targets(a: TokenScores, b: TokenScores, start: int, stop: int) -> np.ndarray:
    of_a, of_b = (np.asarray(scores.targets[start:stop]) for scores in (a, b))
    other = np.flatnonzero(of_a != of_b)
    if len(other):
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} score other tokens, from scored token "
            f"{start + int(other[0])} of {a.split} on; make both again: memlm evaluate … --save-token-scores"
        )
    return of_a
