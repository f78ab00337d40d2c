"""Confidence intervals of changes of perplexity: a percentile bootstrap, paired by document or
block.

Tokens of one document resemble each other, so documents are drawn, not tokens (a cluster
bootstrap). A mean is a ratio of sums, since documents differ in length. Source: Efron and
Tibshirani 1993, An Introduction to the Bootstrap, chapters 8 and 13. `memlm compare` draws in the
same way. A report's own intervals need no saved scores of tokens.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.evaluation.figures.places import Units
from stages.evaluation.figures.token_scores import has_scores, open_scores
from stages.metrics import FEWEST_UNITS, perplexity
from stages.reporting import Progress, unheard

DRAWS_AT_ONCE = 1 << 22

Interval = list[float] | None
"""Edges of a confidence interval; None if there is none."""


@dataclass(frozen=True)
class Bootstrap:
    """Settings of a bootstrap: `samples` resamples, each of U draws with replacement from U units."""

    samples: int = 10_000
    confidence: float = 0.95
    """Share of the resamples inside an interval."""
    seed: int = 0

    def intervals(
        self, totals: np.ndarray, weights: np.ndarray, progress: Progress = unheard
    ) -> list[tuple[float, float] | None]:
        """The interval of each mean, sum(totals) / sum(weights), all from the same draws.

        Args:
            totals: float64 [U, C], the sum over each of U units for each of C means.
            weights: float64 [U, C], the number of tokens (or words, or characters) in each sum.
            progress: called with the number of resamples drawn.
        Returns: for each mean the quantiles (1 - confidence) / 2 and (1 + confidence) / 2 of the
            resampled means; resamples without weight are left out; None for a mean with weight in
            fewer than `FEWEST_UNITS` units.
        """
        means = self.resampled_means(totals, weights, progress)
        enough = (weights > 0).sum(axis=0) >= FEWEST_UNITS
        return [
            self.interval(column) if is_enough else None
            for column, is_enough in zip(means.T, enough, strict=True)
        ]

    def resampled_means(
        self, totals: np.ndarray, weights: np.ndarray, progress: Progress = unheard
    ) -> np.ndarray:
        """The means of all resamples, float64 [samples, C]; NaN if no weight was drawn."""
        total, weight = np.hsplit(
            self.resampled_sums(np.concatenate([totals, weights], axis=1), progress), 2
        )
        return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)

    def resampled_sums(self, values: np.ndarray, progress: Progress = unheard) -> np.ndarray:
        """Sums of values [U, C] of U units over the units of each resample, float64 [samples, C]."""
        # all means come from the same draws, so their differences are paired
        random = np.random.default_rng(self.seed)
        units = len(values)
        at_once = max(1, DRAWS_AT_ONCE // units)
        parts = []
        for start in range(0, self.samples, at_once):
            draws = random.integers(0, units, (min(at_once, self.samples - start), units))
            parts.append(_times(draws) @ values)
            progress(start + len(draws), self.samples, "resamples")
        return np.concatenate(parts)

    def interval(self, means: np.ndarray) -> tuple[float, float] | None:
        """The percentile interval of the resampled values [samples], without NaN; None if all are
        NaN.
        """
        means = means[~np.isnan(means)]
        if not len(means):
            return None
        low, high = np.quantile(means, [(1 - self.confidence) / 2, (1 + self.confidence) / 2])
        return float(low), float(high)


def _times(draws: np.ndarray) -> np.ndarray:
    """The number of times that each of U units is among the U draws of a row, float64 [n, U].

    >>> _times(np.array([[0, 2, 2]])).tolist()
    [[1.0, 0.0, 2.0]]
    """
    rows, units = draws.shape
    # each row has cells of its own, so that one count serves all rows
    cells = draws + np.arange(rows)[:, None] * units
    counts = np.bincount(cells.ravel(), minlength=draws.size)
    return counts.reshape(draws.shape).astype(np.float64)


GROUPS = 2
"""Number of groups: all counted tokens, and the tokens in no paragraph that was read before."""


@dataclass(frozen=True)
class UnitSums:
    """Sums over the counted tokens of each of U units, in each of GROUPS groups."""

    nll: np.ndarray
    """Nats of each of R rows, float64 [GROUPS, R, U]."""
    tokens: np.ndarray
    """Number of tokens, float64 [GROUPS, U]."""

    @classmethod
    def nothing(cls, rows: int, units: int) -> "UnitSums":
        return cls(np.zeros((GROUPS, rows, units)), np.zeros((GROUPS, units)))

    def add(self, first: int, sums: "UnitSums") -> None:
        """Add the sums of consecutive units, from unit `first` on."""
        units = slice(first, first + sums.tokens.shape[-1])
        self.nll[..., units] += sums.nll
        self.tokens[..., units] += sums.tokens


@dataclass(frozen=True)
class UnitFiles:
    """Files in which shards store the sums of their documents or blocks."""

    units: Units
    outside: np.ndarray | None
    """Whether each token is in no paragraph that was read before, bool [T]; None if not known."""
    rows: int
    """Number of rows: the model alone, and the rows of memory."""

    @property
    def scratch_bytes(self) -> int:
        """Size in bytes of all files, if no unit is in two shards."""
        return 8 * GROUPS * (self.rows + 1) * self.units.count

    def write(
        self, output: ShardOutput, number: int, nll: Sequence[np.ndarray], start: int, stop: int
    ) -> None:
        """Write the sums of shard `number`, tokens [start, stop); `nll`: nats [c] of the counted
        tokens, by row.
        """
        chosen = self.units.places.chosen
        places = (
            np.arange(start, stop)
            if chosen is None
            else chosen[(chosen >= start) & (chosen < stop)]
        )
        first, sums = self._sums(places, np.stack(nll))
        save_arrays(output.add(_file(number)), np.array(first), sums.nll, sums.tokens)

    def read(self, folder: Path, numbers: Sequence[int]) -> UnitSums:
        """The sums of all shards."""
        total = UnitSums.nothing(self.rows, self.units.count)
        for number in numbers:
            with (folder / _file(number)).open("rb") as file:
                total.add(int(np.load(file)), UnitSums(np.load(file), np.load(file)))
        return total

    def of_baseline(self, report: Artifact) -> UnitSums | None:
        """The sums of the first row of another report on the same tokens; None if it saved no token
        scores.
        """
        if not has_scores(report):
            return None
        scores = open_scores(report, "model")
        total = UnitSums.nothing(1, self.units.count)
        n = len(self.units.places)
        total.add(*self._sums(self.units.places.read(0, n), scores.nll(0, n)[None]))
        return total

    def of_split(self, nll: np.ndarray) -> UnitSums:
        """The sums of one row; `nll`: nats [T] of all tokens of the split, counted or not."""
        places = self.units.places.read(0, len(self.units.places))
        total = UnitSums.nothing(1, self.units.count)
        total.add(*self._sums(places, nll[None, places]))
        return total

    def _sums(self, places: np.ndarray, nll: np.ndarray) -> tuple[int, UnitSums]:
        """The first unit of some tokens, and the sums from that unit to their last; nll float64 [R,
        n].
        """
        if not len(places):
            return 0, UnitSums.nothing(len(nll), 0)
        units = self.units.of(places)
        first = int(units[0])
        units = units - first
        count = int(units[-1]) + 1
        is_new = np.zeros(len(places)) if self.outside is None else self.outside[places]

        sums = []
        tokens = []
        # all text, then new text
        for is_member in (np.ones(len(places)), is_new):
            tokens.append(np.bincount(units, is_member, count))
            with np.errstate(invalid="ignore"):
                rows = [np.bincount(units, np.where(is_member, row, 0), count) for row in nll]
            sums.append(rows)
        return first, UnitSums(np.array(sums), np.array(tokens))


def _file(number: int) -> str:
    return f"scratch/drawn-{number:06d}.npy"


def change_intervals(
    names: Sequence[str], sums: UnitSums, units: Units, baseline: UnitSums | None = None
) -> dict[str, Any] | None:
    """Confidence intervals of the change of each row's perplexity against the first row's; JSON.

    Args:
        names: names of the rows.
        sums: sums of the rows.
        baseline: sums of the row that all are compared with; None: the first of them.
    Returns: for each row the `interval` of its change, the interval `on_new_text`, and the interval
        of its distance `above_lowest` row. Each is in shares of perplexity, or None. None alone if
        there is nothing to compare.
    """
    first = sums.nll[:, :1]
    rows = sums.nll[:, 1:]
    compared = names[1:]
    if baseline is not None:
        first = baseline.nll
        rows = sums.nll
        compared = names
    has_tokens = sums.tokens[0] > 0
    if not len(compared) or not has_tokens.any():
        return None

    bootstrap = Bootstrap()
    tokens = sums.tokens[:, has_tokens]
    first = first[..., has_tokens]
    rows = rows[..., has_tokens]
    everywhere, on_new_text = _intervals(bootstrap, rows, first, tokens)

    # a row that is not a number anywhere cannot be the lowest
    totals = np.nan_to_num(rows[0].sum(axis=-1), nan=np.inf)
    lowest = int(totals.argmin())
    (above_lowest,) = _intervals(bootstrap, rows[:1], rows[:1, [lowest]], tokens[:1])
    above_lowest[lowest] = None

    figures = []
    for number, name in enumerate(compared):
        row = {
            "row": name,
            "interval": everywhere[number],
            "on_new_text": on_new_text[number],
            "above_lowest": above_lowest[number],
        }
        figures.append(row)
    return {**asdict(bootstrap), **units.facts(int(has_tokens.sum())), "rows": figures}


def control_intervals(sums: UnitSums, controls: np.ndarray) -> list[tuple[Interval, Interval]]:
    """Confidence intervals of the change of each row's perplexity against its control's.

    Args:
        sums: sums of the rows.
        controls: sums of nats of their controls, float64 [GROUPS, R, U]; NaN for a row without one.
    Returns: for each row the interval on all text, and on new text, in shares of perplexity.
    """
    has_tokens = sums.tokens[0] > 0
    if not has_tokens.any():
        return [(None, None)] * sums.nll.shape[1]
    everywhere, on_new_text = _intervals(
        Bootstrap(),
        sums.nll[..., has_tokens],
        controls[..., has_tokens],
        sums.tokens[:, has_tokens],
    )
    return list(zip(everywhere, on_new_text, strict=True))


def _intervals(
    bootstrap: Bootstrap, rows: np.ndarray, first: np.ndarray, tokens: np.ndarray
) -> list[list[list[float] | None]]:
    """Intervals of each row's change against a baseline, as shares, for each group of tokens.

    Args:
        rows: sums of nats in each of U units, float64 [G, R, U].
        first: sums of the baseline, float64 [G, 1, U], or of one for each row, [G, R, U].
        tokens: number of tokens in each sum, float64 [G, U].
    """
    groups, count = rows.shape[:2]
    with np.errstate(invalid="ignore"):
        differences = (rows - first).reshape(groups * count, -1).T
    is_finite = np.isfinite(differences).all(axis=0)
    totals = np.where(is_finite, differences, 0)
    weights = np.repeat(tokens, count, axis=0).T

    shares = []
    for interval, has_interval in zip(bootstrap.intervals(totals, weights), is_finite, strict=True):
        shares.append(_shares(interval) if has_interval else None)
    return [shares[start : start + count] for start in range(0, len(shares), count)]


def _shares(interval: tuple[float, float] | None) -> list[float] | None:
    """An interval of the change of mean loss, in nats, as relative changes of perplexity."""
    ratios = [] if interval is None else [perplexity(edge, 1) for edge in interval]
    shares = [ratio - 1 for ratio in ratios if ratio is not None]
    return shares if len(shares) == 2 else None
