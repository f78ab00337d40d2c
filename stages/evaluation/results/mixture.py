"""Two probabilities of each token, mixed with one weight."""

import numpy as np

EVEN = 0.5
"""The weight of each where there is no text to fit it on."""
HALVINGS = 14
"""Halvings of the range of weights: to 1/16,384, which moves no perplexity by a digit that is shown."""


def mixed(first: np.ndarray, second: np.ndarray, weight: float) -> np.ndarray:
    """(1 - weight) first + weight second, float64 [T]."""
    return (1 - weight) * first + weight * second


def best_weight(first: np.ndarray, second: np.ndarray) -> float:
    """The weight with which the mixture gives tokens the highest likelihood, from 0 to 1.

    The log-likelihood is concave in the weight, so its slope is halved down to where it is 0.

    Args:
        first, second: positive, float64 [T]; of no token the weight is that of EVEN.

    >>> best_weight(np.array([0.1, 0.9]), np.array([0.9, 0.1]))
    0.5
    """
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        weight = (low + high) / 2
        slope = float(((second - first) / mixed(first, second, weight)).sum())
        if slope == 0:
            return weight
        low, high = (weight, high) if slope > 0 else (low, weight)
    return (low + high) / 2
