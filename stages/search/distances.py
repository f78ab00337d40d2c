"""Distances recomputed from stored keys, one pass over the shards for many queries."""

import faiss
import numpy as np
from jaxtyping import Float, Float32, Int64, Integer

from stages.search.keys import StoredKeys, widened
from stages.search.ranking import best_first, score_to_distance, sorted_places
from stages.search.searcher import Searcher
from stages.threads import slices

PAIR_ELEMENTS = 1 << 20
"""Elements of half-precision keys that are widened at a time: 4 MB."""


def pair_scores(
    queries: Float[np.ndarray, "n d"],
    which: Integer[np.ndarray, " pairs"],
    keys: Float[np.ndarray, "m d"],
    rows: Integer[np.ndarray, " pairs"],
    metric: str,
) -> Float32[np.ndarray, " pairs"]:
    """Scores of the pairs (queries[which], keys[rows]), summed in float32.

    Squared distances are computed from differences, so the distance of a key to itself is exactly
    0.

    >>> keys = np.array([[0, 1], [3, 5]], np.float16)
    >>> pair_scores(np.array([[0.0, 1.0]]), np.array([0, 0]), keys, np.array([0, 1]), "l2").tolist()  # 0, and 9 + 16
    [0.0, 25.0]
    """
    # keys that occur in several pairs are widened once, not for each pair
    if len(which) > len(keys):
        keys = widened(keys)
    if keys.dtype == np.float32:
        return _pair_scores(queries, which, keys, rows, metric)
    out = np.empty(len(which), np.float32)
    step = max(1, PAIR_ELEMENTS // keys.shape[1])
    for part in slices(len(which), step):
        few = widened(keys[rows[part]])
        out[part] = _pair_scores(queries, which[part], few, np.arange(len(few)), metric)
    return out


def _pair_scores(
    queries: np.ndarray, which: np.ndarray, keys: np.ndarray, rows: np.ndarray, metric: str
) -> np.ndarray:
    """Scores of pairs for keys in float32."""
    product = "pairwise_indexed_L2sqr" if metric == "l2" else "pairwise_indexed_inner_product"
    score = getattr(faiss, product)
    # FAISS reads raw memory, so the arrays must be contiguous, and alive until it returns
    arrays: list[np.ndarray] = [
        np.ascontiguousarray(queries, np.float32),
        np.ascontiguousarray(which, np.int64),
        np.ascontiguousarray(keys, np.float32),
        np.ascontiguousarray(rows, np.int64),
    ]
    out = np.empty(len(which), np.float32)
    score(keys.shape[1], len(which), *map(faiss.swig_ptr, arrays), faiss.swig_ptr(out))
    return out if metric == "l2" else -out


def exact_distances(
    keys: StoredKeys,
    queries: Float32[np.ndarray, "n d"],
    ids: Int64[np.ndarray, "n k"],
    metric: str,
) -> Float32[np.ndarray, "n k"]:
    """Distance of every query to each of its rows, summed in float32 from the stored keys.

    All pairs are sorted by row and grouped by shard, so each needed shard is read once for all
    queries. Memory beyond the arguments and the result is 16 bytes a pair and two shards.

    Args:
        keys: the datastore's keys, float16 (widened before any arithmetic) or float32.
        queries: [n, d] float32.
        ids: [n, k] int64 rows of the datastore, -1 where there is none.
        metric: `l2` (squared distance) or `ip` (inner product).
    Returns: [n, k] float32; +inf (l2) or -inf (ip) where the id is -1. The order is that of `ids`.

    >>> keys = StoredKeys(np.array([[0, 0], [3, 4]], np.float16), rows_per_shard=1)
    >>> exact_distances(keys, np.zeros((1, 2), np.float32), np.array([[1, 0, -1]]), "l2").tolist()
    [[25.0, 0.0, inf]]
    """
    rows, places = sorted_places(ids.ravel())
    scores = np.full(rows.shape, np.inf, np.float32)

    # the pairs of shard i are those from limit i to limit i + 1; missing rows, -1, come before all
    first_rows = np.arange(keys.shards + 1, dtype=np.int64) * keys.rows_per_shard
    limits = np.searchsorted(rows, first_rows)
    shards = np.flatnonzero(np.diff(limits)).tolist()

    k = ids.shape[1]
    for shard, (first, block) in zip(shards, keys.each(shards), strict=True):
        part = slice(limits[shard], limits[shard + 1])
        part_places = places[part]
        owners = part_places // k
        rows_of_block = rows[part] - first
        scores[part_places] = pair_scores(queries, owners, block, rows_of_block, metric)
    return score_to_distance(scores.reshape(ids.shape), metric)


def exact_order(
    keys: StoredKeys,
    queries: Float32[np.ndarray, "n d"],
    ids: Int64[np.ndarray, "n candidates"],
    metric: str,
    k: int,
) -> tuple[Int64[np.ndarray, "n {k}"], Float32[np.ndarray, "n {k}"]]:
    """The k best of each query's candidates by exact distance: ids [n, k] and distances [n, k].

    >>> keys = StoredKeys(np.array([[0, 0], [3, 4]], np.float16), rows_per_shard=1)
    >>> ids, distances = exact_order(keys, np.zeros((1, 2), np.float32), np.array([[1, 0, -1]]), "l2", k=2)
    >>> ids.tolist(), distances.tolist()
    ([[0, 1]], [[0.0, 25.0]])
    """
    distances = exact_distances(keys, queries, ids, metric)
    scores, best = best_first(score_to_distance(distances, metric), ids, k)
    return best, score_to_distance(scores, metric)


def search_with_candidates(
    searcher: Searcher,
    keys: StoredKeys,
    queries: np.ndarray,
    k: int,
    candidates: int | None,
    forbidden: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best allowed rows of each query: ids [n, k] and distances [n, k], as `Searcher.search`
    gives them.

    Args:
        candidates: number of rows, at least k, that the searcher finds and exact distances rank;
            None: the searcher's own distances decide.
        forbidden: [n, 2] int64, rows first <= row < last that a query may not see.
    """
    if candidates is None:
        return searcher.search(queries, k, forbidden)
    ids, _ = searcher.search(queries, candidates, forbidden)
    return exact_order(keys, queries, ids, searcher.metric, k)
