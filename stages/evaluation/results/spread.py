"""Mean, standard deviation and interval of a few numbers, as repeated runs give them."""

from collections.abc import Sequence
from math import gamma, pi, sqrt
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """Mean and spread of n numbers; deviation and interval are None for a single one."""

    n: int
    mean: float
    deviation: float | None
    """Standard deviation of a run, with n − 1."""
    interval: tuple[float, float] | None
    """Interval of the mean: mean ± t s / √n (Student 1908)."""


def spread(values: Sequence[float], confidence: float) -> Spread:
    """Summarize runs that differ by luck alone.

    >>> spread([1.0, 2.0, 3.0], 0.95)
    Spread(n=3, mean=2.0, deviation=1.0, interval=(-0.484138, 4.484138))
    """
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Spread(n, mean, None, None)
    deviation = float(np.std(values, ddof=1))
    half = student_t(confidence, n - 1) * deviation / sqrt(n)
    return Spread(n, mean, deviation, (round(mean - half, 6), round(mean + half, 6)))


def student_t(confidence: float, freedom: int) -> float:
    """t such that a Student variable lies in [−t, t] with this probability; by bisection, to 1e-9.

    >>> [round(student_t(0.95, freedom), 3) for freedom in (1, 2, 4, 30)]
    [12.706, 4.303, 2.776, 2.042]
    """
    low, high = 0.0, 1.0
    while _inside(high, freedom) < confidence:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < confidence else (low, middle)
    return high


def _inside(t: float, freedom: int) -> float:
    """Probability of [−t, t]: with x = √ν tan φ the density is a power of cos φ, smooth on a short range."""
    angles = np.linspace(0.0, np.arctan(t / sqrt(freedom)), 2001)
    density = np.cos(angles) ** (freedom - 1)
    weights = np.ones(2001)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    area = float(weights @ density) * float(angles[1]) / 3
    # Γ of large arguments overflows; by then the distribution is the normal one to many digits.
    nu = min(freedom, 300)
    return float(2 * gamma((nu + 1) / 2) / (sqrt(pi) * gamma(nu / 2)) * area)
