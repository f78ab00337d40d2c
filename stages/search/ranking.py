"""Order of neighbours: smaller scores come first, and of equal scores the smaller row.

All search code minimises a *score*: the squared distance (l2) or minus the inner product (ip).
"""

import numpy as np
from jaxtyping import Float32, Int64, Integer

NO_ROW = 0xFFFFFFFF
MISSING = (0x7F800000 << 32) | NO_ROW
"""The packed value of a missing candidate."""


def slack(k: int) -> int:
    """Number of candidates kept beyond k, in case rounding in a matrix product changes their order."""
    return max(4, k // 32)


def score_to_distance(scores: np.ndarray, metric: str) -> np.ndarray:
    """Distances for users, from scores; missing rows (+inf) become -inf for inner products.

    >>> score_to_distance(np.array([-3.0, np.inf]), "ip").tolist()
    [3.0, -inf]
    """
    return scores if metric == "l2" else -scores


def packed(
    scores: Float32[np.ndarray, "*shape"], ids: Int64[np.ndarray, "*shape"]
) -> Int64[np.ndarray, "*shape"]:
    """Score and id packed into one integer: sortable float bits above the id. Integers sort in
    neighbour order.

    A single sort of integers is several times faster than a sort by two keys.

    Args:
        scores: float32; a candidate with score +inf or id -1 counts as missing, and comes last.
        ids: int64, below 2**32 - 1.

    >>> both = packed(np.array([-0.5, 3.0], np.float32), np.array([8, 2]))
    >>> bool(both[0] < both[1]), [array.tolist() for array in unpacked(both)]
    (True, [[-0.5, 3.0], [8, 2]])
    """
    # adding 0 turns -0.0 into 0.0, since their bits differ
    bits = np.asarray(scores + np.float32(0)).view(np.int32)
    # bits of negative floats rise as the float falls: xor of all but the sign reverses them
    mask = (bits >> 31) & 0x7FFFFFFF
    both = np.asarray(bits ^ mask).astype(np.int64)

    # in place, since a table of candidates is large
    both <<= 32
    both |= ids
    both[(ids < 0) | (scores == np.inf)] = MISSING
    return both


def unpacked(
    both: Int64[np.ndarray, "*shape"],
) -> tuple[Float32[np.ndarray, "*shape"], Int64[np.ndarray, "*shape"]]:
    """Scores and ids of integers from `packed`; +inf and -1 where missing.

    >>> scores, ids = unpacked(packed(np.array([-0.5, np.inf], np.float32), np.array([8, 3])))
    >>> scores.tolist(), ids.tolist()
    ([-0.5, inf], [8, -1])
    """
    bits = (both >> 32).astype(np.int32)
    scores = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(np.float32)
    ids = both & NO_ROW
    ids[ids == NO_ROW] = -1
    return scores, ids


def best_first(
    scores: Float32[np.ndarray, "n m"], ids: Int64[np.ndarray, "n m"], k: int
) -> tuple[Float32[np.ndarray, "n {k}"], Int64[np.ndarray, "n {k}"]]:
    """The k best of each row's candidates, sorted by (score, id).

    Args: as of `packed`.
    Returns: scores [n, k] float32 and ids [n, k] int64, padded with +inf and -1.

    If scores are equal, the smaller row comes first:

    >>> best_first(np.array([[2.0, 1.0, 1.0]], np.float32), np.array([[7, 9, 4]]), k=2)[1].tolist()
    [[4, 9]]
    """
    both = packed(scores, ids)
    both.sort(axis=1)
    best, rows = unpacked(both[:, :k])

    num_missing = k - rows.shape[1]
    if num_missing > 0:
        padding = ((0, 0), (0, num_missing))
        best = np.pad(best, padding, constant_values=np.inf)
        rows = np.pad(rows, padding, constant_values=-1)
    return best, rows


def sorted_places(
    values: Int64[np.ndarray, " n"],
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Values [n] (-1 … 2**31 - 1) in rising order, and the former place of each; equal values keep
    their order.

    Value and place are packed into one integer, which sorts several times faster than an argsort.

    >>> [array.tolist() for array in sorted_places(np.array([5, -1, 5]))]
    [[-1, 5, 5], [1, 0, 2]]
    """
    places = np.arange(len(values))
    packed = (values << 32) | places
    packed.sort()
    return packed >> 32, packed & NO_ROW


def without(
    ids: Int64[np.ndarray, "n m"], exclude_ranges: Integer[np.ndarray, "n 2"] | None
) -> Int64[np.ndarray, "n m"]:
    """Ids [n, m], with -1 for rows that the query may not see ([n, 2] ranges).

    >>> without(np.array([[3, 7]]), np.array([[7, 9]])).tolist()
    [[3, -1]]
    """
    if exclude_ranges is None:
        return ids
    start = exclude_ranges[:, :1]
    stop = exclude_ranges[:, 1:]
    return np.where((ids >= start) & (ids < stop), -1, ids)


def allowed_rows(
    rows: int, n: int, exclude_ranges: Integer[np.ndarray, "{n} 2"] | None
) -> Integer[np.ndarray, " {n}"]:
    """Number of rows [n] that each query may see.

    >>> allowed_rows(10, 2, np.array([[2, 5], [8, 20]])).tolist()
    [7, 8]
    """
    if exclude_ranges is None:
        return np.full(n, rows)
    clipped = exclude_ranges.clip(0, rows)
    return rows - (clipped[:, 1] - clipped[:, 0]).clip(0)


def pick(exclude_ranges: np.ndarray | None, which: np.ndarray | slice) -> np.ndarray | None:
    """The ranges of the chosen queries."""
    return None if exclude_ranges is None else exclude_ranges[which]
