"""Orders in which batches take examples."""

import numpy as np


def shuffled_order(count: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """Examples of batches [batches, size]: a permutation drawn from (seed, epoch), without what fills no batch."""
    permutation = np.random.default_rng([seed, epoch]).permutation(count)
    batches = count // size
    return permutation[: batches * size].reshape(batches, size)


def aligned_order(count: int, size: int) -> np.ndarray:
    """Examples of batches whose row b is one stream, int64 [batches, size]; the same in every epoch.

    The split is cut into `size` streams of equal length; examples after the last stream are left out.

    >>> aligned_order(7, 2)
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    batches = count // size
    return np.arange(size * batches).reshape(size, batches).T
