"""Scanning keys with matrix products: scores of many queries against many rows.

Keys and queries are extended by one column, [y, |y|^2] and [-2x, 1], so that a single product gives |y|^2 - 2xy, the
squared distance up to the query's own norm, with nothing left to add ([-x, 0] for inner products). Both are
first moved to an origin among the keys, which changes no order and spares digits. Such scores are *rough*: they decide
which pairs are looked at again by `pair_scores`, free of cancellation, within a bound that allows for rounding.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64

from stages.search.distances import pair_scores
from stages.search.keys import widened
from stages.search.ranking import packed

TILE_SCORES = 1 << 18
"""Scores that a thread computes at a time: 1 MB, so that they are looked at before they leave the cache."""

NARROW = 64
"""Excluded ranges up to this width are searched along; wider ones are hidden."""

ROUNDING = 1e-6
"""Two scores this close, relative to what they are computed from, may stand in the wrong order."""


def extended_queries(
    queries: Float[np.ndarray, "n d"], origin: Float[np.ndarray, " d"], metric: str
) -> Float32[np.ndarray, "n d+1"]:
    """[n, d] -> [n, d + 1] float32."""
    out = np.empty((len(queries), queries.shape[1] + 1), np.float32)
    if metric == "l2":
        np.subtract(queries, origin, out=out[:, :-1])
        out[:, :-1] *= -2
    else:
        np.negative(queries, out=out[:, :-1])
    out[:, -1] = metric == "l2"
    return out


def extended_keys(keys: Float[np.ndarray, "m d"], origin: Float[np.ndarray, " d"]) -> Float32[np.ndarray, "m d+1"]:
    """[m, d] in any float dtype -> [m, d + 1] float32."""
    out = np.empty((len(keys), keys.shape[1] + 1), np.float32)
    moved = out[:, :-1]
    np.subtract(widened(keys), origin, out=moved)
    out[:, -1] = np.einsum("nd,nd->n", moved, moved)
    return out


class KeyBlock(NamedTuple):
    """Keys that are scanned together: their rows, int64 [m], rising; as they are, and extended, both float32."""

    rows: np.ndarray
    vectors: np.ndarray
    extended: np.ndarray

    @property
    def radius(self) -> np.float32:
        """Distance from the origin to the farthest key."""
        return np.float32(np.sqrt(self.extended[:, -1].max(initial=0)))


class QueryBlock:
    """Queries [n, d] that are searched for together.

    Attributes:
        vectors: [n, d] float32.
        extended: [n, d + 1].
        constant: [n] what is missing from a rough score.
        exclude: [n, 2] ranges of rows that each may not see, or None.
    """

    def __init__(self, queries: np.ndarray, origin: np.ndarray, metric: str, exclude: np.ndarray | None) -> None:
        self.vectors, self.metric, self.exclude = queries, metric, exclude
        self.hides = widest(exclude) > NARROW
        self.extended = extended_queries(queries, origin, metric)
        if metric == "l2":
            self.constant = np.einsum("nd,nd->n", self.extended[:, :-1], self.extended[:, :-1]) / 4
        else:
            self.constant = -(queries @ origin)
            self.lengths, self.far = np.linalg.norm(queries, axis=1), np.linalg.norm(origin)

    def __len__(self) -> int:
        return len(self.vectors)

    def magnitude(self, radius: np.float32) -> Float32[np.ndarray, " n"]:
        """What rough scores of keys within a distance of the origin are computed from, as far as it rounds them.

        Near keys are no farther from the origin than a query and its distance to them, but an inner product that is
        small may be made of large terms.
        """
        return self.constant if self.metric == "l2" else self.lengths * (radius + self.far)

    def reach(self, rough: Float32[np.ndarray, " n"], radius: np.float32) -> Float32[np.ndarray, " n"]:
        """The largest rough score of a row that is as near as one of this score, whatever rounding does.

        Args:
            radius: distance from the origin within which all keys of these scores lie; `allowed` adds what the
                rounding of others takes.
        """
        return rough + np.float32(2 * ROUNDING) * (self.magnitude(radius) + np.abs(rough))

    def allowed(self, bounds: Float32[np.ndarray, " n"], radius: np.float32) -> Float32[np.ndarray, " n"]:
        """The largest rough scores, of keys within a distance of the origin, that may lie within bounds of `reach`."""
        return bounds if self.metric == "l2" else bounds + np.float32(2 * ROUNDING) * self.magnitude(radius)

    def rough(self, which: Int64[np.ndarray, " q"], keys: KeyBlock) -> Float32[np.ndarray, "q m"]:
        """Rough scores, +inf where long ranges of rows are not to be seen; of short ones they are there."""
        scores = self.extended[which] @ keys.extended.T
        if self.hides and self.exclude is not None:
            _hide(scores, np.asarray(np.searchsorted(keys.rows, self.exclude[which])), np.inf)
        return scores

    def smallest(
        self, which: Int64[np.ndarray, " q"], keys: KeyBlock, depth: int
    ) -> Iterator[Float32[np.ndarray, "t w"]]:
        """The smallest rough scores of each of these queries, as many as `depth`, some queries at a time.

        Where long ranges are not to be seen they rise, so that those to be seen come first.
        """
        for part in _tiles(which, keys):
            yield smallest_of(self.rough(part, keys), depth, rising=self.hides)

    def depth(self, k: int) -> int:
        """Among so many rows of the smallest rough scores k may be seen."""
        return k if self.hides else k + widest(self.exclude)

    def bounds(self, keys: KeyBlock, k: int) -> Float32[np.ndarray, " n"]:
        """Rough scores beyond which none of the k best rows lies, by these keys alone; +inf if they are too few."""
        depth = self.depth(k)
        if len(keys.rows) < depth:
            return np.full(len(self), np.inf, np.float32)
        scores = self.rough(np.arange(len(self)), keys)
        scores.partition(depth - 1, axis=1)
        return self.reach(scores[:, depth - 1], keys.radius)

    def within(
        self, which: Int64[np.ndarray, " q"], keys: KeyBlock, bounds: Float32[np.ndarray, " n"]
    ) -> Iterator["Pairs"]:
        """The pairs of these queries and keys that may be seen and whose rough score is at most the query's bound."""
        bounds = self.allowed(bounds, keys.radius)
        for part in _tiles(which, keys):
            near = self.extended[part] @ keys.extended.T <= bounds[part, None]
            if self.hides and self.exclude is not None:
                _hide(near, np.asarray(np.searchsorted(keys.rows, self.exclude[part])), False)
            yield self._pairs(part, keys, near)

    def _pairs(self, which: Int64[np.ndarray, " q"], keys: KeyBlock, near: Bool[np.ndarray, "q m"]) -> "Pairs":
        found, columns = np.flatnonzero(near), near.shape[1]
        counts = np.diff(np.searchsorted(found, np.arange(len(which) + 1) * columns))
        owners = np.repeat(which, counts)
        places = found - np.repeat(np.arange(len(which)) * columns, counts)
        rows = keys.rows[places]
        scores = pair_scores(self.vectors, owners, keys.vectors, places, self.metric)
        if self.exclude is not None:
            scores[(rows >= self.exclude[owners, 0]) & (rows < self.exclude[owners, 1])] = np.inf
        return Pairs(which, counts, packed(scores, rows))


class Pairs(NamedTuple):
    """Pairs of queries and keys, query by query: `counts` [q] for each of `which` [q]; `packed` score and row."""

    which: np.ndarray
    counts: np.ndarray
    packed: np.ndarray


def _tiles(which: Int64[np.ndarray, " q"], keys: KeyBlock) -> Iterator[Int64[np.ndarray, " t"]]:
    """Some queries at a time, whose scores with these keys are TILE_SCORES or those of a single query."""
    step = max(1, TILE_SCORES // len(keys.rows))
    for first in range(0, len(which), step):
        yield which[first : first + step]


def smallest_of(scores: Float32[np.ndarray, "t m"], depth: int, rising: bool) -> Float32[np.ndarray, "t w"]:
    """The smallest of each row, as many as `depth` if there are; changes the order of the rows given."""
    if depth < scores.shape[1]:
        scores.partition(depth - 1, axis=1)
        scores = scores[:, :depth].copy()  # which does not hold the others
    if rising:
        scores.sort(axis=1)
    return scores


def _hide(table: np.ndarray, columns: Int64[np.ndarray, "q 2"], value: float | bool) -> None:
    """Put a value in the columns start … stop - 1 of each row of a table [q, m]."""
    columns = columns.clip(0, table.shape[1])
    for row in np.flatnonzero(columns[:, 1] > columns[:, 0]):
        table[row, columns[row, 0] : columns[row, 1]] = value


def widest(exclude: Int64[np.ndarray, "n 2"] | None) -> int:
    """Rows in the longest excluded range."""
    return 0 if exclude is None else max(0, int((exclude[:, 1] - exclude[:, 0]).max(initial=0)))
