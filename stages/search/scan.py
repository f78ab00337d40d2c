"""Scanning keys with matrix products: scores of many queries against many rows.

Let o be an origin among the keys. Then |y - o|^2 - 2(x - o)y is the squared distance, except for a
constant of each query. It needs a product with the unchanged keys, and lengths that are computed
once. Lengths from o lose fewer digits, and only the queries are shifted. For inner products the
score is -xy. These scores are *rough*. They select the pairs that `pair_scores` computes again
without cancellation, within a bound that allows for rounding.
"""

import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64

from stages.search.distances import pair_scores
from stages.search.ranking import packed
from stages.search.tiles import (
    Tile,
    cut_tile,
    hide,
    num_scores,
    side_by_side,
    small_tiles,
    smallest_of,
)
from stages.search.top_k import runs
from stages.threads import ThreadPool, in_turn, slices

FLAGS = 1 << 22
PAIRS = 1 << 18
"""FLAGS pairs are tested against bounds at a time, 4 MB; PAIRS of those that pass are scored
exactly at a time.

Threads wait for each other between calls of NumPy, so a few long calls are faster."""

QUERIES = 1024
"""Queries that a thread prepares at a time."""

NARROW = 64
"""Excluded ranges up to this width are searched with the rest and dropped; wider ones are hidden.
"""

ROUNDING = 1e-6
"""Two scores this close, relative to the terms they are computed from, may be in the wrong order.
"""


def squared_lengths(
    keys: Float32[np.ndarray, "m d"],
    origin: Float[np.ndarray, " d"],
    out: Float32[np.ndarray, " m"],
    scratch: "Scratch",
) -> None:
    """Squared distances of keys from the origin.

    >>> out = np.empty(2, np.float32)
    >>> squared_lengths(np.array([[1, 1], [4, 5]], np.float32), np.ones(2, np.float32), out, Scratch())
    >>> out.tolist()
    [0.0, 25.0]
    """
    moved = np.subtract(keys, origin, out=scratch.array("moved", keys.shape))
    np.einsum("nd,nd->n", moved, moved, out=out)


def add_products(
    queries: Float32[np.ndarray, "q d"],
    keys: Float32[np.ndarray, "m d"],
    out: Float32[np.ndarray, "q m"],
) -> None:
    """Add inner products to `out`.

    For 64 queries and 1,000 keys, PyTorch takes two thirds of NumPy's time. NumPy is used where
    PyTorch may round float32 to fewer digits.

    >>> scores = np.array([[10.0, 20.0]], np.float32)
    >>> add_products(np.array([[1, 2]], np.float32), np.array([[3, 0], [0, 4]], np.float32), scores)
    >>> scores.tolist()
    [[13.0, 28.0]]
    """
    if torch.get_float32_matmul_precision() == "highest":
        torch.from_numpy(out).addmm_(torch.from_numpy(queries), torch.from_numpy(keys).T)
    else:
        out += np.matmul(queries, keys.T)


class Scratch(threading.local):
    """Working memory of a thread, kept between calls so that its pages are not allocated again."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """An uninitialised array; it shares its memory with earlier arrays of this name."""
        size = prod(shape)
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            array = np.empty(size, dtype)
            self._arrays[name] = array
        return array[:size].reshape(shape)


class KeyBlock(NamedTuple):
    """Keys that are scanned together.

    Attributes:
        rows: [m] int64, rising.
        vectors: [m, d] float32.
        lengths: [m] float32, squared distances from the origin.
    """

    rows: np.ndarray
    vectors: np.ndarray
    lengths: np.ndarray

    def part(self, part: slice) -> "KeyBlock":
        return KeyBlock(self.rows[part], self.vectors[part], self.lengths[part])

    def whole(self, places: Int64[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """See `ScannedKeys`."""
        return self.vectors, places

    @property
    def radius(self) -> np.float32:
        """Distance from the origin to the farthest key."""
        return np.float32(np.sqrt(self.lengths.max(initial=0)))


class ScannedKeys(Protocol):
    """Keys that are scanned together and whose near pairs are scored again."""

    @property
    def rows(self) -> np.ndarray:
        """[m] int64."""

    def whole(self, places: Int64[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """Keys [n, d], and the position among them of the key at each place, int64 [p]."""


class QueryBlock:
    """Queries [n, d] that are searched for together.

    Attributes:
        vectors: [n, d] float32.
        factors: [n, d] vectors that keys are multiplied by.
        lengths: [n] distances from the origin; for inner products, from 0.
        constant: [n] difference between the exact score and the rough one.
        exclude: [n, 2] ranges of rows that each may not see, or None.
    """

    def __init__(
        self,
        queries: np.ndarray,
        origin: np.ndarray,
        metric: str,
        exclude: np.ndarray | None,
        pool: ThreadPool = in_turn,
    ) -> None:
        self.vectors = queries
        self.metric = metric
        self.exclude = exclude
        self.hides = widest(exclude) > NARROW
        self.factors = np.empty((len(queries), queries.shape[1]), np.float32)
        self.constant = np.zeros(len(queries), np.float32)
        self.lengths = np.empty(len(queries), np.float32)
        self.far = np.linalg.norm(origin)

        def prepare(part: slice) -> None:
            factors = self.factors[part]
            if metric != "l2":
                np.negative(queries[part], out=factors)
                self.lengths[part] = np.linalg.norm(factors, axis=1)
                return
            np.subtract(queries[part], origin, out=factors)
            self.lengths[part] = np.linalg.norm(factors, axis=1)
            # |k - q|² = |k - o|² - 2 (k - o)·(q - o) + |q - o|²: the last term is the same for all
            # keys of a query
            factors *= -2
            self.constant[part] = self.lengths[part] ** 2 - factors @ origin

        pool(prepare, slices(len(queries), QUERIES))

    def __len__(self) -> int:
        return len(self.vectors)

    def magnitude(self, radius: np.float32) -> Float32[np.ndarray, " n"]:
        """Bound on the terms of rough scores, for keys within a radius of the origin.

        Under l2 the length of a near key is at most that of the query plus their distance. A small
        inner product, however, may be a sum of large terms.
        """
        if self.metric == "l2":
            return self.lengths * (self.lengths + 2 * self.far)
        return self.lengths * (radius + self.far)

    def reach(
        self, rough: Float32[np.ndarray, " n"], radius: np.float32
    ) -> Float32[np.ndarray, " n"]:
        """The largest rough score that a row at least as near as one with this score can have,
        given rounding.

        Args:
            radius: distance from the origin within which all keys of these scores lie; `allowed`
                adds the rounding error of other keys.
        """
        return rough + np.float32(2 * ROUNDING) * (self.magnitude(radius) + np.abs(rough))

    def allowed(
        self, bounds: Float32[np.ndarray, " n"], radius: np.float32
    ) -> Float32[np.ndarray, " n"]:
        """Bounds of `reach`, widened by the rounding error of keys within a radius of the origin."""
        return (
            bounds
            if self.metric == "l2"
            else bounds + np.float32(2 * ROUNDING) * self.magnitude(radius)
        )

    def depth(self, k: int) -> int:
        """Number of rows with the smallest rough scores that must include k allowed ones."""
        return k if self.hides else k + widest(self.exclude)

    def bounds(self, keys: KeyBlock, k: int) -> Float32[np.ndarray, " n"]:
        """Upper bounds on the rough scores of the k best rows, from these keys alone; +inf if they
        are too few.
        """
        depth = self.depth(k)
        num_keys = len(keys.rows)
        if num_keys < depth:
            return np.full(len(self), np.inf, np.float32)

        all_queries = np.arange(len(self))
        tile = (all_queries, slice(0, num_keys))
        scores = self._table([tile], keys, Scratch())
        # a partition puts the score of this rank in its place, and costs less than a sort
        scores.partition(depth - 1, axis=1)
        return self.reach(scores[:, depth - 1], keys.radius)

    def smallest(
        self, tiles: Iterable[Tile], keys: KeyBlock, depth: int, scratch: Scratch
    ) -> Iterator[tuple[slice, Float32[np.ndarray, "t w"]]]:
        """The `depth` smallest rough scores of each query, tile after tile, some queries at a time.

        Each item is a slice of all queries and their scores. The memory of the scores is reused for
        the next item. If long ranges are hidden, scores are sorted, so that the allowed ones come
        first.
        """
        small = chain.from_iterable(map(cut_tile, tiles))
        first = 0
        for group in side_by_side(small, depth):
            scores = self._table(group, keys, scratch)
            stop = first + len(scores)
            yield slice(first, stop), smallest_of(scores, depth, rising=self.hides)
            first = stop

    def within(
        self,
        tiles: Iterable[Tile],
        keys: KeyBlock,
        bounds: Float32[np.ndarray, " n"],
        scratch: Scratch,
    ) -> Iterator["ScoredPairs"]:
        """Pairs of queries and keys whose rough score is at most the query's bound; excluded rows
        count as missing.

        They come tile after tile, in the order of the queries.
        """
        for group in small_tiles(tiles, FLAGS):
            flags = self._near(group, keys, bounds, scratch)
            yield from self.pairs(group, keys, flags)

    def _table(
        self, tiles: list[Tile], keys: KeyBlock, scratch: Scratch
    ) -> Float32[np.ndarray, "q m"]:
        """Rough scores of tiles, one below the other; narrow tiles are padded with +inf.

        Rows in long excluded ranges are +inf, too; rows in short ones keep their scores.
        """
        which = np.concatenate([queries for queries, _ in tiles])
        factors = self._factors_of(which, scratch)
        width = max(part.stop - part.start for _, part in tiles)
        table = scratch.array("scores", (len(which), width))

        first = 0
        for queries, part in tiles:
            stop = first + len(queries)
            num_keys = part.stop - part.start
            tile_table = table[first:stop]
            self._score(factors[first:stop], keys.part(part), tile_table[:, :num_keys])
            tile_table[:, num_keys:] = np.inf
            self._hide_excluded(tile_table, queries, keys.rows[part], np.inf)
            first = stop
        return table

    def _hide_excluded(
        self,
        table: np.ndarray,
        queries: Int64[np.ndarray, " q"],
        rows: Int64[np.ndarray, " m"],
        value: float | bool,
    ) -> None:
        """Put a value where a query may not see a row, in a table [q, at least m], if long ranges
        are hidden.
        """
        if self.hides and self.exclude is not None:
            # rows rise, so an excluded range of them is a range of columns
            columns = np.searchsorted(rows, self.exclude[queries])
            hide(table, np.asarray(columns), value)

    def _factors_of(
        self, which: Int64[np.ndarray, " q"], scratch: Scratch
    ) -> Float32[np.ndarray, "q d"]:
        """Factors of some of the queries, copied to working memory."""
        factors = scratch.array("queries", (len(which), self.factors.shape[1]))
        # with the mode "raise", NumPy would fill a copy of `out` first
        self.factors.take(which, axis=0, out=factors, mode="clip")
        return factors

    def _score(
        self, factors: Float32[np.ndarray, "q d"], keys: KeyBlock, out: Float32[np.ndarray, "q m"]
    ) -> None:
        """Write rough scores to `out`."""
        out[:] = keys.lengths if self.metric == "l2" else 0
        add_products(factors, keys.vectors, out)

    def _near(
        self, tiles: list[Tile], keys: KeyBlock, bounds: Float32[np.ndarray, " n"], scratch: Scratch
    ) -> Bool[np.ndarray, " scores"]:
        """Flags of the pairs within the bounds, of all tiles end to end."""
        num_flags = sum(map(num_scores, tiles))
        flags = scratch.array("flags", (num_flags,), bool)

        # rounding of inner products grows with the longest key of these tiles, not with that of the
        # bound
        if self.metric != "l2":
            radius = max(keys.part(part).radius for _, part in tiles)
            bounds = self.allowed(bounds, radius)

        first = 0
        for queries, part in tiles:
            num_keys = part.stop - part.start
            scores = scratch.array("scores", (len(queries), num_keys))
            factors = self._factors_of(queries, scratch)
            self._score(factors, keys.part(part), scores)

            # a view: what is written to it stands in `flags`
            stop = first + scores.size
            near = flags[first:stop].reshape(scores.shape)
            np.less_equal(scores, bounds[queries, None], out=near)
            self._hide_excluded(near, queries, keys.rows[part], False)
            first = stop
        return flags

    def pairs(
        self, tiles: list[Tile], keys: "ScannedKeys", flags: Bool[np.ndarray, " scores"]
    ) -> Iterator["ScoredPairs"]:
        """The flagged pairs of some tiles, excluded ones at +inf.

        Args:
            tiles: t tiles, with q queries in all.
            flags: the flags of each query's keys, tile after tile, end to end.
        """
        queries = np.concatenate([tile_queries for tile_queries, _ in tiles])
        queries_of_tile = np.array([len(tile_queries) for tile_queries, _ in tiles])
        keys_of_tile = np.array([part.stop - part.start for _, part in tiles])
        first_key_of_tile = np.array([part.start for _, part in tiles])

        # the flags of a query are a run: its start [q], and what turns an index of a flag into that
        # of a key [q]
        run_lengths = runs(keys_of_tile, queries_of_tile, step=0)
        run_starts = np.cumsum(run_lengths) - run_lengths
        first_key = runs(first_key_of_tile, queries_of_tile, step=0)
        flag_to_key = first_key - run_starts

        # the flagged pairs of query i are flagged[limits[i] : limits[i + 1]]
        flagged = np.flatnonzero(flags)
        limits = np.append(np.searchsorted(flagged, run_starts), len(flagged))
        for part in _parts(limits):
            counts = np.diff(limits[part.start : part.stop + 1])
            # index in `queries` of the query of each pair
            owners = runs(np.arange(part.start, part.stop), counts, step=0)
            part_flagged = flagged[limits[part.start] : limits[part.stop]]
            positions = part_flagged + flag_to_key.take(owners)
            pairs = self._compared(queries.take(owners), keys, positions)
            yield ScoredPairs(queries[part], counts, pairs)

    def _compared(
        self, owners: np.ndarray, keys: "ScannedKeys", places: np.ndarray
    ) -> Int64[np.ndarray, " p"]:
        """Pairs of queries and keys, `packed`; excluded rows count as missing."""
        rows = keys.rows.take(places)
        vectors, positions = keys.whole(places)
        scores = pair_scores(self.vectors, owners, vectors, positions, self.metric)
        if self.exclude is not None:
            first, stop = self.exclude[owners].T
            is_excluded = (rows >= first) & (rows < stop)
            scores[is_excluded] = np.inf
        return packed(scores, rows)


class ScoredPairs(NamedTuple):
    """Pairs of queries and keys, query by query.

    Attributes:
        which: [q] queries.
        counts: [q] number of pairs of each query.
        packed: [pairs] score and row of each pair.
    """

    which: np.ndarray
    counts: np.ndarray
    packed: np.ndarray


def _parts(limits: Int64[np.ndarray, " ends"]) -> Iterator[slice]:
    """Slices of queries with at most PAIRS pairs, or of one query; `limits` are the offsets of each
    query's pairs.

    Pairs of the second query alone are too many:

    >>> list(_parts(np.array([0, 5, 5 + 2 * PAIRS, 7 + 2 * PAIRS])))
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    first = 0
    num_queries = len(limits) - 1
    while first < num_queries:
        max_limit = limits[first] + PAIRS
        last_fitting = int(np.searchsorted(limits, max_limit, side="right")) - 1
        # a single query may have more pairs
        stop = max(first + 1, last_fitting)
        yield slice(first, stop)
        first = stop


def widest(exclude: Int64[np.ndarray, "n 2"] | None) -> int:
    """Number of rows in the longest excluded range.

    >>> widest(np.array([[2, 2], [5, 9]])), widest(None)
    (4, 0)
    """
    if exclude is None:
        return 0
    widths = exclude[:, 1] - exclude[:, 0]
    return max(0, int(widths.max(initial=0)))
