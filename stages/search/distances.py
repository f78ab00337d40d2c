"""Distances recomputed from stored keys, one pass over the shards for many queries."""

import numpy as np

from stages.search.keys import StoredKeys


def exact_distances(keys: StoredKeys, queries: np.ndarray, ids: np.ndarray, metric: str) -> np.ndarray:
    """Distance of every query to each of its rows, summed in float32 from the stored keys.

    Args:
        keys: the datastore's keys; each shard that is needed is read once, whole.
        queries: [n, dim] float32.
        ids: [n, k] int64 rows of the datastore, -1 where there is none.
        metric: `l2` (squared distance) or `ip` (inner product).
    Returns: [n, k] float32; +inf (l2) or -inf (ip) where the id is -1. The order is that of `ids`.
    """
    raise NotImplementedError
