"""Orders in which the batches of an epoch take examples."""

import numpy as np


def shuffled_order(count: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """Draw the examples of an epoch's batches, int64 [batches, size], from (seed, epoch).

    No example comes twice. The last ones of the permutation, too few for a batch, are left out.
    """
    permutation = np.random.default_rng([seed, epoch]).permutation(count)
    batches = count // size
    return permutation[: batches * size].reshape(batches, size)


def aligned_order(count: int, size: int) -> np.ndarray:
    """Give each row b of the batches one stream of examples, int64 [batches, size]; the same in every epoch.

    The split is cut into `size` streams of equal length. Examples after the last stream are left out.

    >>> aligned_order(7, 2)
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    batches = count // size
    return np.arange(size * batches).reshape(size, batches).T
