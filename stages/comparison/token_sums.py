"""One pass over two reports of the same tokens: sums by group of tokens, and the tokens won and lost most."""

from typing import NamedTuple

import numpy as np

from stages.comparison.tally import Group, PairedTokens, Tally, TopTokens, position_range
from stages.errors import ArtifactError
from stages.evaluation.figures.frequency import BOUNDS, Frequencies
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.places import Units
from stages.evaluation.figures.token_scores import TokenScores
from stages.reporting import Progress, unheard

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
