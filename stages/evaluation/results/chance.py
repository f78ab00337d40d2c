"""How often a neighbour would be right by chance: what a retrieval accuracy is to be held against."""

from collections.abc import Sequence

import numpy as np


def chance_accuracy(stored: np.ndarray, scored: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """Share of tokens that stand among the values of K rows drawn at random, by K.

    One of type v stands among them with probability 1 - (1 - p_v)^K, where p_v is the share of v in all rows.

    Args:
        stored: rows of each type, int64 [V].
        scored: tokens of each type, int64 [V].
        at: numbers of rows, K.

    >>> chance_accuracy(np.array([3, 1]), np.array([1, 1]), at=(1, 2))
    {'1': 0.5, '2': 0.6875}
    """
    never = 1 - stored / stored.sum()
    return {str(k): float(np.average(1 - never**k, weights=scored)) for k in at}
