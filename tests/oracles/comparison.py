"""Paired comparisons, one token and one resample at a time."""

from collections.abc import Sequence
from itertools import product

import numpy as np


def mean_differences(
    units: Sequence[int], groups: Sequence[int], nll_a: Sequence[float], nll_b: Sequence[float]
) -> dict[int, tuple[int, float, int, int]]:
    """Of each group: tokens, mean difference B - A, tokens won and lost by B."""
    found = {}
    for group in set(groups):
        rows = [row for row in range(len(groups)) if groups[row] == group]
        differences = [nll_b[row] - nll_a[row] for row in rows]
        won, lost = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
        found[group] = len(rows), sum(differences) / len(rows), won, lost
    return found


def resampled_means(
    totals: Sequence[float], weights: Sequence[float], samples: int, seed: int
) -> list[float]:
    """The means of resamples of U units each, drawn by NumPy's default generator, row after row."""
    drawn = np.random.default_rng(seed).integers(0, len(totals), (samples, len(totals)))
    means = []
    for row in drawn.tolist():
        weight = sum(weights[unit] for unit in row)
        means.append(sum(totals[unit] for unit in row) / weight if weight else float("nan"))
    return means


def all_resampled_means(totals: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The means of all U^U resamples, each as likely as the others, in order."""
    units = range(len(totals))
    return sorted(
        sum(totals[unit] for unit in drawn) / sum(weights[unit] for unit in drawn)
        for drawn in product(units, repeat=len(totals))
    )
