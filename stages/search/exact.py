"""Exact search: every query against every stored key, shard after shard."""

from collections.abc import Callable

import numpy as np

from stages.search.distances import exact_distances
from stages.search.keys import StoredKeys
from stages.search.ranking import score_to_distance
from stages.search.scan import ScanningSearcher, candidates, extended_keys, extended_queries

ORIGIN_ROWS = 256


class ExactSearcher(ScanningSearcher):
    """Searches stored keys without an index; holds one shard and the one being read.

    Args:
        compared: hears how many keys each scan has seen so far.
    """

    def __init__(
        self, keys: StoredKeys, metric: str, device: str = "cpu", compared: Callable[[int], None] = lambda keys: None
    ) -> None:
        super().__init__(rows=keys.rows, dim=keys.dim, metric=metric, lossless=True)
        self.keys, self.device, self.compared = keys, device, compared
        self.origin = keys.rows_between(0, min(keys.rows, ORIGIN_ROWS)).mean(axis=0, dtype=np.float32)

    def reaches_all(self, effort: int) -> bool:
        return True

    def collect(
        self, queries: np.ndarray, size: int, masked: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        found = candidates(extended_queries(queries, self.origin, self.metric), size, self.device)
        everyone = np.arange(len(queries))
        for first, block in self.keys.each():
            hidden = None if masked is None else masked - first
            rows = np.arange(first, first + len(block))
            found.scan(everyone, extended_keys(block, self.origin, self.metric), rows, hidden)
            self.compared(first + len(block))
        return found.result()

    def settle(self, queries: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distances = exact_distances(self.keys, queries, names, self.metric)
        return score_to_distance(distances, self.metric), names
