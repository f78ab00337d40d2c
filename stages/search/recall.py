"""How much of exact search an index finds."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys
from stages.search.searcher import Searcher

RECALL_AT = (1, 4, 8, 64, 1024)


def recall(found: np.ndarray, true: np.ndarray, k: int) -> float:
    """Share of the k nearest rows that are among the k found, 1 if there are none; ids [n, >= k], -1 where missing."""
    shared = [len(np.intersect1d(f[f >= 0], t[t >= 0])) for f, t in zip(found[:, :k], true[:, :k], strict=True)]
    wanted = int((true[:, :k] >= 0).sum())
    return float(np.sum(shared)) / wanted if wanted else 1.0


Progress = Callable[[int, int, str], None]
"""Hears what is done, of how much, and what of."""


def measure(
    searcher: Searcher, keys: StoredKeys, queries: int, seed: int, progress: Progress = lambda done, total, unit: None
) -> dict[str, Any]:
    """Recall of an index against exact search, for stored rows that may not find themselves.

    Args:
        searcher: the index.
        keys: what it was built from.
        queries: rows to try, drawn at random.
        seed: of the draw.
        progress: hears how far exact search is, and then the index.
    Returns: JSON: `queries`; `recall` by k (1, 4, 8, 64, 1024 as rows allow); for an index with lists
        `recall_by_probe`, the same by number of lists read; `queries_per_second` by k, the queries
        searched together.
    """
    rows = np.sort(np.random.default_rng(seed + 1).choice(keys.rows, min(queries, keys.rows), replace=False))
    sample, itself = keys.take(rows), np.stack([rows, rows + 1], axis=1)
    at = [k for k in RECALL_AT if k < keys.rows] or [1]
    exact = ExactSearcher(keys, searcher.metric, compared=lambda done: progress(done, keys.rows, "keys compared"))
    true, _ = exact.search(sample, at[-1], itself)
    rates = {}
    for k in dict.fromkeys((min(4, at[-1]), at[-1])):
        started = time.perf_counter()
        found, _ = searcher.search(sample, k, itself)
        rates[str(k)] = round(len(rows) / (time.perf_counter() - started), 1)
    figures = {
        "queries": len(rows),
        "recall": {str(k): round(recall(found, true, k), 4) for k in at},
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
    """Recall@k with exactly 1, 2, 4 … lists read, up to the number in use: {probe: {k: recall}}."""
    table = {}
    most = searcher.probe
    probes = [*(2**i for i in range(most.bit_length()) if 2**i < most), most]
    for number, probe in enumerate(probes, start=1):
        searcher.probe = probe
        found = searcher.attempt(sample, at[-1], itself, effort=0).ids
        table[str(probe)] = {str(k): round(recall(found, true, k), 4) for k in at}
        progress(number, len(probes), "numbers of lists tried")
    return table
