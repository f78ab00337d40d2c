"""How good an index is: how much of exact search it finds, and whether it holds the keys that it was made of."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np

from stages.numbers import rate
from stages.reporting import Progress, unheard
from stages.search.build import grows_in_parts
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys, widened
from stages.search.lists import DecodedLists, Lists, ListsInMemory, filled, lists_in_file
from stages.search.open import read_index
from stages.search.searcher import Searcher

RECALL_AT = (1, 4, 8, 64, 1024)


class Recalled:
    """True neighbours that were found: ranks of rows, ids [n, m] of each query once, -1 where missing."""

    def __init__(self, found: np.ndarray, true: np.ndarray) -> None:
        self._ranks = _ranks(found, true)
        self._missing = true < 0

    def pool(self, k: int) -> float:
        """Share of the k nearest rows among the k found; 1 if there are none."""
        shared, wanted = self._counts(k)
        return float(shared.sum()) / int(wanted.sum()) if wanted.any() else 1.0

    def standard_error(self, k: int) -> float:
        """Standard error of that share, if n queries were drawn from all (Cochran 1977, eq. 2.45)."""
        shared, wanted = self._counts(k)
        n = len(shared)
        if n < 2 or not wanted.any():
            return 0.0
        residuals = shared - self.pool(k) * wanted
        return float(np.sqrt((residuals**2).sum() / (n - 1) / n) / wanted.mean())

    def _counts(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Count each query's neighbours that were found, and all of them, int64 [n] each."""
        return (self._ranks[:, :k] < k).sum(axis=1), k - self._missing[:, :k].sum(axis=1)


def _ranks(found: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The rank among the true neighbours [n, m] of each found row [n, w]; m and more where it is not one of them.

    >>> _ranks(np.array([[7, 5, 3, -1]]), np.array([[5, 7, 9]])).tolist()
    [[1, 0, 3, 3]]
    """
    # a query's rows get numbers of their own, so that one search finds the ranks of all
    apart = max(int(found.max(initial=0)), int(true.max(initial=0))) + 1
    queries = np.arange(len(true))[:, None] * apart
    places = np.where(true < 0, -1, true + queries)
    order = np.argsort(places, axis=None, kind="stable")
    rising, wanted = places.ravel()[order], np.where(found < 0, -2, found + queries)
    at = np.searchsorted(rising, wanted).clip(max=rising.size - 1)
    return np.where(rising[at] == wanted, order[at] % true.shape[1], true.shape[1])


def recall(found: np.ndarray, true: np.ndarray, k: int) -> float:
    """Share of the k nearest rows that are among the k found, 1 if there are none; ids [n, >= k], -1 where missing.

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
        keys: what it was built from.
        queries: rows to try, drawn at random.
        seed: of the draw.
        progress: hears how far exact search is, and then the index.
    Returns: JSON: `queries`; `recall` by k (1, 4, 8, 64, 1024 as rows allow), and its `recall_error`, one standard
        error each, from one query to the next; for an index with lists
        `recall_by_probe`, the same by number of lists read; `queries_per_second` by k, the queries
        searched together.
    """
    # a draw of its own: with that of training, recall would be that of keys which centroids were fitted to
    rows = np.sort(np.random.default_rng(seed + 1).choice(keys.rows, min(queries, keys.rows), replace=False))
    sample, itself = keys.take(rows), np.stack([rows, rows + 1], axis=1)
    at = [k for k in RECALL_AT if k < keys.rows] or [1]
    exact = ExactSearcher(keys, searcher.metric, compared=lambda done: progress(done, keys.rows, "keys compared"))
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
    """Recall@k with exactly 1, 2, 4 … lists read, up to the number in use: {probe: {k: recall}}."""
    table, most = {}, searcher.probe
    probes = [*(2**i for i in range(most.bit_length()) if 2**i < most), most]
    ranks = searcher.list_ranks(sample, true) if searcher.lossless else None
    for number, probe in enumerate(probes, start=1):
        if ranks is None:
            searcher.probe = probe
            found = searcher.attempt(sample, at[-1], itself, effort=0).ids
        else:  # what lies in a list that is read is found, since its keys are as they were
            found = np.where(ranks < probe, true, -1)
        recalled = Recalled(found, true)
        table[str(probe)] = {str(k): round(recalled.pool(k), 4) for k in at}
        progress(number, len(probes), "numbers of lists tried")
    return table


SAMPLE_BYTES = 1 << 26
"""Bytes of stored keys that are compared; of more, shards drawn at random."""
WORSE, OF_LENGTH = 1e-3, 1e-6
"""Shares of its own error, and of a key's squared length, by which a code of another machine may be worse."""


class _Sample(NamedTuple):
    """Some keys: rows int64 [n], rising, and the keys float32 [n, dim]."""

    rows: np.ndarray
    keys: np.ndarray


def wrong_rows(path: Path, keys: StoredKeys, counts: np.ndarray | None = None) -> str | None:
    """Describe the rows of an index file that are not those of its keys; None: none that a sample shows.

    Args:
        counts: rows that each row stands for, int32 [rows], 0 of those that are not held; None: all are.
    Raises: ArtifactError if the file is no index.
    """
    lists = lists_in_file(path)
    index = read_index(path) if lists is None else lists.index()
    ivf: Any = faiss.try_extract_index_ivf(index)
    listed: Lists | None = None if ivf is None else lists or ListsInMemory(ivf)
    rows_held = np.arange(index.ntotal)
    if listed is not None:
        rows_held = np.concatenate([np.empty(0, np.int64), *map(listed.ids, filled(listed))])
    wanted, distinct = np.arange(keys.rows) if counts is None else np.flatnonzero(counts), np.unique(rows_held)
    if len(rows_held) != len(wanted) or not np.array_equal(distinct, wanted):
        return f"it has {len(rows_held):,} keys of {len(distinct):,} rows, and its datastore {len(wanted):,}"
    sample = _sample(keys)
    wrong = list(_in_order(index, sample) if listed is None else _in_lists(index, listed, sample))
    rows = np.sort(np.concatenate([np.empty(0, np.int64), *wrong]))
    if not len(rows):
        return None
    return f"{len(rows):,} of its keys are not those of its datastore's rows, {rows[0]:,} the first"


def _sample(keys: StoredKeys) -> _Sample:
    most = max(1, SAMPLE_BYTES // (keys.rows_per_shard * keys.dim * keys.dtype.itemsize))
    chosen = sorted(np.random.default_rng(0).permutation(keys.shards)[:most].tolist())
    rows = np.concatenate([np.arange(*keys.bounds(shard)) for shard in chosen])
    return _Sample(rows, np.concatenate([widened(keys.read(shard)) for shard in chosen]))


def _in_lists(index: Any, lists: Lists, sample: _Sample) -> Iterator[np.ndarray]:
    """Rows of a sample whose codes in lists are not those of their keys; none of kinds whose codes are packed."""
    if not grows_in_parts(index):
        return
    ivf: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
    keys = sample.keys
    if isinstance(index, faiss.IndexPreTransform):
        chain: Any = index.chain
        for step in range(chain.size()):
            keys = chain.at(step).apply(keys)
    stored = DecodedLists(ivf, lists)
    for number in filled(lists):
        rows = lists.ids(number)
        places = np.searchsorted(sample.rows, rows).clip(max=len(sample.rows) - 1)
        among = np.flatnonzero(sample.rows[places] == rows)
        if len(among):
            own = keys[places[among]]
            ideal = stored.decoded(number, _codes(ivf, own, number))
            yield rows[among][_differ(own, stored.decoded(number, lists.codes(number)[among]), ideal)]


def _codes(ivf: Any, keys: np.ndarray, number: int) -> np.ndarray:
    """Codes of keys in a list, uint8 [n, bytes of a code]."""
    codes = np.empty((len(keys), ivf.code_size), np.uint8)
    keys, lists = np.ascontiguousarray(keys), np.full(len(keys), number, np.int64)
    # FAISS gets bare addresses: each array needs a name, so that it lives as long as the call.
    ivf.encode_vectors(len(keys), faiss.swig_ptr(keys), faiss.swig_ptr(lists), faiss.swig_ptr(codes))
    return codes


def _in_order(index: Any, sample: _Sample) -> Iterator[np.ndarray]:
    """Rows of a sample that an index without lists holds otherwise; none of kinds that cannot give keys back."""
    codes = index.storage if isinstance(index, faiss.IndexHNSW) else index
    try:
        stored = codes.reconstruct_batch(sample.rows)
        # codes are compared by what they stand for: equal keys may be coded otherwise on another machine
        ideal = codes.sa_decode(codes.sa_encode(sample.keys))
    except RuntimeError:
        return
    yield sample.rows[_differ(sample.keys, stored, ideal)]


def _differ(keys: np.ndarray, stored: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """Which stored keys are farther from the keys than what their codes can hold of them, bool [n]."""
    error, least = (np.square(one.astype(np.float32) - keys).sum(axis=1) for one in (stored, ideal))
    slack = np.where(least > 0, WORSE * least + OF_LENGTH * np.square(keys).sum(axis=1), 0)
    return error > least + slack
