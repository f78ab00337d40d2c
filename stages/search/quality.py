"""Quality of an index: its recall against exact search, and its speed."""

import time
from typing import Any

import numpy as np

from stages.numbers import rate
from stages.reporting import Progress, unheard
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys
from stages.search.searcher import Searcher

RECALL_AT = (1, 4, 8, 64, 1024)


class Recalled:
    """Recall of true neighbours. Ids are [n, m], unique for each query, and -1 where missing."""

    def __init__(self, found: np.ndarray, true: np.ndarray) -> None:
        self._ranks = _ranks(found, true)
        self._missing = true < 0

    def pool(self, k: int) -> float:
        """Share of the k nearest rows that are among the k found, over all queries; 1 if there are
        none.
        """
        shared, wanted = self._counts(k)
        return float(shared.sum()) / int(wanted.sum()) if wanted.any() else 1.0

    def standard_error(self, k: int) -> float:
        """Standard error of that share over a random sample of n queries (Cochran 1977, eq. 2.45)."""
        shared, wanted = self._counts(k)
        n = len(shared)
        if n < 2 or not wanted.any():
            return 0.0
        residuals = shared - self.pool(k) * wanted
        return float(np.sqrt((residuals**2).sum() / (n - 1) / n) / wanted.mean())

    def _counts(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of each query's neighbours that were found, and of all its neighbours, int64 [n]
        each.
        """
        return (self._ranks[:, :k] < k).sum(axis=1), k - self._missing[:, :k].sum(axis=1)


def _ranks(found: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The rank among the true neighbours [n, m] of each found row [n, w]; m if it is not one of
    them.

    >>> _ranks(np.array([[7, 5, 3, -1]]), np.array([[5, 7, 9]])).tolist()
    [[1, 0, 3, 3]]
    """
    # each query gets its own range of numbers, so that one search finds the ranks for all queries
    range_size = max(int(found.max(initial=0)), int(true.max(initial=0))) + 1
    range_starts = np.arange(len(true))[:, None] * range_size

    # two different numbers for missing rows, so that a missing row is never a true neighbour
    true_numbers = np.where(true < 0, -1, true + range_starts)
    found_numbers = np.where(found < 0, -2, found + range_starts)

    order = np.argsort(true_numbers, axis=None, kind="stable")
    sorted_numbers = true_numbers.ravel()[order]
    index = np.searchsorted(sorted_numbers, found_numbers).clip(max=sorted_numbers.size - 1)
    is_neighbor = sorted_numbers[index] == found_numbers
    num_neighbors = true.shape[1]
    return np.where(is_neighbor, order[index] % num_neighbors, num_neighbors)


def recall(found: np.ndarray, true: np.ndarray, k: int) -> float:
    """Share of the k nearest rows that are among the k found, 1 if there are none; ids [n, >= k],
    -1 where missing.

    >>> recall(np.array([[3, 9]]), np.array([[9, 4]]), k=2)
    0.5
    """
    return Recalled(found, true).pool(k)


def measure(
    searcher: Searcher, keys: StoredKeys, queries: int, seed: int, progress: Progress = unheard
) -> dict[str, Any]:
    """Recall of an index against exact search, for stored rows that may not find themselves.

    Args:
        searcher: the index.
        keys: the keys that it was built from.
        queries: number of rows that serve as queries, drawn at random.
        seed: seed of the draw.
        progress: receives the progress of exact search, and then of the index.
    Returns: JSON: `queries`; `recall` by k (1, 4, 8, 64, 1024 as rows allow); `recall_error`, the
        standard error of each over queries; for an index with lists, `recall_by_probe`, recall by
        the number of lists read and k; `queries_per_second` by k, with all queries searched
        together.
    """
    # another seed than training uses: otherwise recall would be measured on keys that centroids
    # were fitted to
    rows = np.sort(
        np.random.default_rng(seed + 1).choice(keys.rows, min(queries, keys.rows), replace=False)
    )
    sample = keys.take(rows)
    itself = np.stack([rows, rows + 1], axis=1)
    at = [k for k in RECALL_AT if k < keys.rows] or [1]
    exact = ExactSearcher(
        keys, searcher.metric, compared=lambda done: progress(done, keys.rows, "keys compared")
    )
    true, _ = exact.search(sample, at[-1], itself)
    rates = {}
    for k in dict.fromkeys((min(4, at[-1]), at[-1])):
        started = time.perf_counter()
        found, _ = searcher.search(sample, k, itself)
        rates[str(k)] = rate(len(rows), time.perf_counter() - started)
    recalled = Recalled(found, true)
    figures = {
        "queries": len(rows),
        "recall": {str(k): round(recalled.pool(k), 4) for k in at},
        "recall_error": {str(k): round(recalled.standard_error(k), 4) for k in at},
        "queries_per_second": rates,
    }
    if isinstance(searcher, GroupedSearcher):
        figures["recall_by_probe"] = _by_probe(searcher, sample, itself, true, at, progress)
    return figures


def _by_probe(
    searcher: GroupedSearcher,
    sample: np.ndarray,
    itself: np.ndarray,
    true: np.ndarray,
    at: list[int],
    progress: Progress,
) -> dict[str, dict[str, float]]:
    """Recall@k with exactly 1, 2, 4 … lists read, up to the searcher's `probe`: {probe: {k:
    recall}}.
    """
    table = {}
    most = searcher.probe
    probes = [*(2**i for i in range(most.bit_length()) if 2**i < most), most]
    ranks = searcher.list_ranks(sample, true) if searcher.lossless else None
    for number, probe in enumerate(probes, start=1):
        if ranks is None:
            searcher.probe = probe
            found = searcher.attempt(sample, at[-1], itself, effort=0).ids
        else:  # lists hold whole keys, so every neighbour in a list that is read is found
            found = np.where(ranks < probe, true, -1)
        recalled = Recalled(found, true)
        table[str(probe)] = {str(k): round(recalled.pool(k), 4) for k in at}
        progress(number, len(probes), "numbers of lists tried")
    return table
