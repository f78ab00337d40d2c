"""Nearest neighbours as defined: every distance in float64, one query at a time, sorted by
(distance, row).
"""

import numpy as np


def nearest(
    queries: np.ndarray,
    keys: np.ndarray,
    k: int,
    metric: str,
    exclude_ranges: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids [n, k], -1 where fewer rows are allowed, and distances [n, k] float64 (+inf or -inf
    there).
    """
    ids = np.full((len(queries), k), -1, np.int64)
    distances = np.full((len(queries), k), np.inf if metric == "l2" else -np.inf)
    wide = keys.astype(np.float64)
    for i, query in enumerate(queries.astype(np.float64)):
        all_distances = ((query - wide) ** 2).sum(axis=1) if metric == "l2" else wide @ query
        rows = list(range(len(keys)))
        if exclude_ranges is not None:
            start, stop = exclude_ranges[i]
            rows = [row for row in rows if not start <= row < stop]
        sign = 1 if metric == "l2" else -1
        best = sorted(rows, key=lambda row: (sign * all_distances[row], row))[:k]
        ids[i, : len(best)] = best
        distances[i, : len(best)] = all_distances[best]
    return ids, distances
