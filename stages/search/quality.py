"""Quality of an index: its recall against exact search, and its speed."""

import time
from collections.abc import Callable
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

    def __init__(self, result: np.ndarray, true: np.ndarray) -> None:
        self._ranks = _ranks(result, true)
        self._missing = true < 0

    def pool(self, k: int) -> float:
        """Share of the k nearest rows that are among the k found, over all queries; 1 if there are
        none.
        """
        shared, totals = self._counts(k)
        return float(shared.sum()) / int(totals.sum()) if totals.any() else 1.0

    def standard_error(self, k: int) -> float:
        """Standard error of that share over a random sample of n queries (Cochran 1977, eq. 2.45)."""
        shared, totals = self._counts(k)
        n = len(shared)
        if n < 2 or not totals.any():
            return 0.0
        residuals = shared - self.pool(k) * totals
        return float(np.sqrt((residuals**2).sum() / (n - 1) / n) / totals.mean())

    def _counts(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of each query's neighbours that were found, and of all its neighbours, int64 [n]
        each.
        """
        shared = (self._ranks[:, :k] < k).sum(axis=1)
        missing = self._missing[:, :k].sum(axis=1)
        return shared, k - missing


def _ranks(result: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The rank among the true neighbours [n, m] of each found row [n, w]; m if it is not one of
    them.

    >>> _ranks(np.array([[7, 5, 3, -1]]), np.array([[5, 7, 9]])).tolist()
    [[1, 0, 3, 3]]
    """
    num_queries, num_neighbors = true.shape

    # each query gets its own range of numbers, so that one search finds the ranks for all queries
    highest_row = max(int(result.max(initial=0)), int(true.max(initial=0)))
    range_size = highest_row + 1
    range_starts = np.arange(num_queries)[:, None] * range_size

    # two different numbers for missing rows, so that a missing row is never a true neighbour
    true_numbers = np.where(true < 0, -1, true + range_starts)
    result_numbers = np.where(result < 0, -2, result + range_starts)

    order = np.argsort(true_numbers, axis=None, kind="stable")
    sorted_numbers = true_numbers.ravel()[order]

    # a number above all others would be looked up beyond the end
    index = np.searchsorted(sorted_numbers, result_numbers)
    index = index.clip(max=sorted_numbers.size - 1)
    is_neighbor = sorted_numbers[index] == result_numbers

    # `order` holds places in the flat table of neighbours: the column is the rank
    rank = order[index] % num_neighbors
    return np.where(is_neighbor, rank, num_neighbors)


def recall(result: np.ndarray, true: np.ndarray, k: int) -> float:
    """Share of the k nearest rows that are among the k found, 1 if there are none; ids [n, >= k],
    -1 where missing.

    >>> recall(np.array([[3, 9]]), np.array([[9, 4]]), k=2)
    0.5
    """
    return Recalled(result, true).pool(k)


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
    generator = np.random.default_rng(seed + 1)
    rows = np.sort(generator.choice(keys.rows, min(queries, keys.rows), replace=False))
    sample = keys.take(rows)
    itself = np.stack([rows, rows + 1], axis=1)

    ks = [k for k in RECALL_AT if k < keys.rows] or [1]
    max_k = ks[-1]
    exact = ExactSearcher(
        keys, searcher.metric, compared=lambda done: progress(done, keys.rows, "keys compared")
    )
    true, _ = exact.search(sample, max_k, itself)

    rates = {}
    for k in dict.fromkeys((min(4, max_k), max_k)):
        started = time.perf_counter()
        result, _ = searcher.search(sample, k, itself)
        rates[str(k)] = rate(len(rows), time.perf_counter() - started)

    # the last search found the most neighbours, and so those of every smaller k
    recalled = Recalled(result, true)
    figures = {
        "queries": len(rows),
        "recall": _by_k(recalled.pool, ks),
        "recall_error": _by_k(recalled.standard_error, ks),
        "queries_per_second": rates,
    }
    if isinstance(searcher, GroupedSearcher):
        figures["recall_by_probe"] = _by_probe(searcher, sample, itself, true, ks, progress)
    return figures


def _by_k(figure: Callable[[int], float], ks: list[int]) -> dict[str, float]:
    return {str(k): round(figure(k), 4) for k in ks}


def _by_probe(
    searcher: GroupedSearcher,
    sample: np.ndarray,
    itself: np.ndarray,
    true: np.ndarray,
    ks: list[int],
    progress: Progress,
) -> dict[str, dict[str, float]]:
    """Recall@k with exactly 1, 2, 4 … lists read, up to the searcher's `probe`: {probe: {k:
    recall}}.
    """
    table = {}
    max_probe = searcher.probe
    powers = [2**i for i in range(max_probe.bit_length())]
    probes = sorted({*powers, max_probe})
    ranks = searcher.list_ranks(sample, true) if searcher.lossless else None
    for number, probe in enumerate(probes, start=1):
        if ranks is None:
            searcher.probe = probe
            ids = searcher.attempt(sample, ks[-1], itself, effort=0).ids
        else:  # lists hold whole keys, so every neighbour in a list that is read is found
            ids = np.where(ranks < probe, true, -1)
        table[str(probe)] = _by_k(Recalled(ids, true).pool, ks)
        progress(number, len(probes), "numbers of lists tried")
    return table
