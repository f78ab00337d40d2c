"""How far a mean would move if other documents had been drawn: the percentile bootstrap over groups of tokens.

Tokens of one document resemble each other, so documents are drawn, not tokens (a cluster bootstrap). A mean is a
ratio of sums, since documents differ in length. Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap,
chapters 8 and 13.
"""

from dataclasses import dataclass

import numpy as np

from stages.metrics import FEWEST_UNITS
from stages.reporting import Progress, unheard

DRAWS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Bootstrap:
    """How units are drawn: `samples` times as many as there are, with replacement."""

    samples: int = 10_000
    confidence: float = 0.95
    """Share of the resamples that an interval holds."""
    seed: int = 0

    def intervals(
        self, totals: np.ndarray, weights: np.ndarray, progress: Progress = unheard
    ) -> list[tuple[float, float] | None]:
        """The interval of each mean, sum(totals) / sum(weights), all from the same draws.

        Args:
            totals: float64 [U, C], the sum over each of U units for each of C means.
            weights: float64 [U, C], how many tokens (or words, or characters) each sum is of.
            progress: hears how many resamples are drawn.
        Returns: per mean the quantiles (1 - confidence) / 2 and (1 + confidence) / 2 of the resampled means, those
            without weight left out; None for a mean that fewer than `FEWEST_UNITS` units have a part in.
        """
        means = self.resampled_means(totals, weights, progress)
        enough = (weights > 0).sum(axis=0) >= FEWEST_UNITS
        return [self._interval(column) if known else None for column, known in zip(means.T, enough, strict=True)]

    def resampled_means(self, totals: np.ndarray, weights: np.ndarray, progress: Progress = unheard) -> np.ndarray:
        """The means of all resamples, float64 [samples, C]; NaN where no weight was drawn."""
        random, units = np.random.default_rng(self.seed), len(totals)
        sums = np.concatenate([totals, weights], axis=1)
        at_once = max(1, DRAWS_AT_ONCE // units)
        parts = []
        for start in range(0, self.samples, at_once):
            drawn = random.integers(0, units, (min(at_once, self.samples - start), units))
            parts.append(_times(drawn) @ sums)
            progress(start + len(drawn), self.samples, "resamples")
        total, weight = np.hsplit(np.concatenate(parts), 2)
        return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)

    def _interval(self, means: np.ndarray) -> tuple[float, float] | None:
        means = means[~np.isnan(means)]
        if not len(means):
            return None
        low, high = np.quantile(means, [(1 - self.confidence) / 2, (1 + self.confidence) / 2])
        return float(low), float(high)


def _times(drawn: np.ndarray) -> np.ndarray:
    """How often each of U units is among the U draws of a row, float64 [n, U]."""
    rows, units = drawn.shape
    cells = drawn + np.arange(rows)[:, None] * units
    return np.bincount(cells.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
