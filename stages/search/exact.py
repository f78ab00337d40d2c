"""Exact search: every query against every stored key, shard after shard."""

import numpy as np

from stages.search.distances import exact_distances
from stages.search.keys import StoredKeys
from stages.search.ranking import score_to_distance
from stages.search.scan import Candidates, ScanningSearcher, extended_keys, extended_queries


class ExactSearcher(ScanningSearcher):
    """Searches stored keys without an index; holds one shard and the one being read."""

    def __init__(self, keys: StoredKeys, metric: str) -> None:
        super().__init__(rows=keys.rows, dim=keys.dim, metric=metric, lossless=True)
        self.keys = keys

    def reaches_all(self, effort: int) -> bool:
        return True

    def collect(
        self, queries: np.ndarray, size: int, masked: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        candidates = Candidates(len(queries), size)
        extended, everyone = extended_queries(queries), np.arange(len(queries))
        for first, block in self.keys.each():
            hidden = None if masked is None else masked - first
            rows = np.arange(first, first + len(block))
            candidates.scan(extended, everyone, extended_keys(block, self.metric), rows, hidden)
        return candidates.result()

    def settle(self, queries: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distances = exact_distances(self.keys, queries, names, self.metric)
        return score_to_distance(distances, self.metric), names
