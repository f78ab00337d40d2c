"""Scanning keys with matrix products: scores of many queries against many rows.

With an origin o among the keys, |y - o|^2 - 2(x - o)y is the squared distance up to what is the query's own: a product
of keys as they are, and lengths that are known beforehand. Distances from o spare digits, and to move queries alone
spares the time to move keys. Inner products are -xy. Such scores are *rough*: they decide which pairs are looked at
again by `pair_scores`, free of cancellation, within a bound that allows for rounding.
"""

import threading
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64

from stages.search.distances import pair_scores
from stages.search.ranking import packed
from stages.search.top_k import runs
from stages.threads import ThreadPool, in_turn, slices

TILE_SCORES = 1 << 19
"""Scores that a thread computes at a time: 2 MB, so that they are looked at before they leave the cache."""

FLAGS, PAIRS = 1 << 22, 1 << 18
"""Pairs of which a thread knows which are near, 4 MB, before it looks at these again, so many of them at a time.

Threads wait for each other between any two calls of NumPy, so that few and long ones are wanted."""

QUERIES = 1024
"""Queries that a thread makes ready at a time."""

NARROW = 64
"""Excluded ranges up to this width are searched along; wider ones are hidden."""

ROUNDING = 1e-6
"""Two scores this close, relative to what they are computed from, may stand in the wrong order."""


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
    queries: Float32[np.ndarray, "q d"], keys: Float32[np.ndarray, "m d"], out: Float32[np.ndarray, "q m"]
) -> None:
    """Add inner products to what is there.

    Of 64 queries and 1,000 keys PyTorch's take two thirds of the time of NumPy's. Where it may round float32 to fewer
    digits on the way, they are NumPy's.

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
    """Memory that a thread computes in, kept from one call to the next: its pages need not be asked for again."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Memory of this name, and of any content; what was there before under the name is lost."""
        size, held = prod(shape), self._arrays.get(name)
        if held is None or len(held) < size:
            held = self._arrays[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


Tile = tuple[Int64[np.ndarray, " q"], slice]
"""Some queries, and which keys of a block they are compared with."""


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
        """See `Keys`."""
        return self.vectors, places

    @property
    def radius(self) -> np.float32:
        """Distance from the origin to the farthest key."""
        return np.float32(np.sqrt(self.lengths.max(initial=0)))


class Keys(Protocol):
    """Keys that are scanned together, of which pairs are looked at again."""

    @property
    def rows(self) -> np.ndarray:
        """[m] int64."""

    def whole(self, places: Int64[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """Keys [n, d], and where among them those at some places are, int64 [p]."""


class QueryBlock:
    """Queries [n, d] that are searched for together.

    Attributes:
        vectors: [n, d] float32.
        factors: [n, d] by which keys are multiplied.
        lengths: [n] distances from the origin; of inner products, from 0.
        constant: [n] what is missing from a rough score.
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
        self.vectors, self.metric, self.exclude = queries, metric, exclude
        self.hides = widest(exclude) > NARROW
        self.factors = np.empty((len(queries), queries.shape[1]), np.float32)
        self.constant = np.zeros(len(queries), np.float32)
        self.lengths, self.far = np.empty(len(queries), np.float32), np.linalg.norm(origin)

        def make_ready(part: slice) -> None:
            own = self.factors[part]
            if metric != "l2":
                np.negative(queries[part], out=own)
                self.lengths[part] = np.linalg.norm(own, axis=1)
                return
            np.subtract(queries[part], origin, out=own)
            self.lengths[part] = np.linalg.norm(own, axis=1)
            # |k - q|² = |k - o|² - 2 (k - o)·(q - o) + |q - o|²: the last term is the same for all keys of a query
            own *= -2
            self.constant[part] = self.lengths[part] ** 2 - own @ origin

        pool(make_ready, slices(len(queries), QUERIES))

    def __len__(self) -> int:
        return len(self.vectors)

    def magnitude(self, radius: np.float32) -> Float32[np.ndarray, " n"]:
        """Bound on the numbers that rough scores of keys within a radius of the origin are computed from.

        Near keys are no farther from the origin than a query and its distance to them, but an inner product that is
        small may be made of large terms.
        """
        if self.metric == "l2":
            return self.lengths * (self.lengths + 2 * self.far)
        return self.lengths * (radius + self.far)

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

    def depth(self, k: int) -> int:
        """Among so many rows of the smallest rough scores k may be seen."""
        return k if self.hides else k + widest(self.exclude)

    def bounds(self, keys: KeyBlock, k: int) -> Float32[np.ndarray, " n"]:
        """Rough scores beyond which none of the k best rows lies, by these keys alone; +inf if they are too few."""
        depth = self.depth(k)
        if len(keys.rows) < depth:
            return np.full(len(self), np.inf, np.float32)
        scores = self._table([(np.arange(len(self)), slice(0, len(keys.rows)))], keys, Scratch())
        scores.partition(depth - 1, axis=1)
        return self.reach(scores[:, depth - 1], keys.radius)

    def smallest(
        self, tiles: Iterable[Tile], keys: KeyBlock, depth: int, scratch: Scratch
    ) -> Iterator[tuple[slice, Float32[np.ndarray, "t w"]]]:
        """The smallest rough scores of each of these queries, as many as `depth`, some queries at a time.

        Tile after tile; with them comes which of all queries these are. They lie where the next are computed. Where
        long ranges are not to be seen they rise, so that those to be seen come first.
        """
        first = 0
        for some in _side_by_side((tile for whole in tiles for tile in _tiles(whole)), depth):
            scores = self._table(some, keys, scratch)
            yield slice(first, first + len(scores)), smallest_of(scores, depth, rising=self.hides)
            first += len(scores)

    def within(
        self, tiles: Iterable[Tile], keys: KeyBlock, bounds: Float32[np.ndarray, " n"], scratch: Scratch
    ) -> Iterator["Pairs"]:
        """The pairs of these queries and keys that may be seen and whose rough score is at most the query's bound.

        Tile after tile, every query of each in turn.
        """
        for some in small_tiles(tiles, FLAGS):
            yield from self.pairs(some, keys, self._near(some, keys, bounds, scratch))

    def _table(self, tiles: list[Tile], keys: KeyBlock, scratch: Scratch) -> Float32[np.ndarray, "q m"]:
        """Rough scores of tiles, one below the other, +inf beside those of fewer keys than others.

        They are +inf too where long ranges of rows are not to be seen; of short ones they are there.
        """
        which = np.concatenate([which for which, _ in tiles])
        own, first = self._taken(which, scratch), 0
        table = scratch.array("scores", (len(which), max(part.stop - part.start for _, part in tiles)))
        for queries, part in tiles:
            rows, size = slice(first, first + len(queries)), part.stop - part.start
            self._score(own[rows], keys.part(part), table[rows, :size])
            table[rows, size:] = np.inf
            if self.hides and self.exclude is not None:
                hide(table[rows], np.asarray(np.searchsorted(keys.rows[part], self.exclude[queries])), np.inf)
            first = rows.stop
        return table

    def _taken(self, which: Int64[np.ndarray, " q"], scratch: Scratch) -> Float32[np.ndarray, "q d"]:
        """Factors that keys are multiplied with, for some of the queries."""
        own = scratch.array("queries", (len(which), self.factors.shape[1]))
        self.factors.take(which, axis=0, out=own, mode="clip")
        return own

    def _score(self, factors: Float32[np.ndarray, "q d"], keys: KeyBlock, out: Float32[np.ndarray, "q m"]) -> None:
        """Rough scores, into memory that is there."""
        out[:] = keys.lengths if self.metric == "l2" else 0
        add_products(factors, keys.vectors, out)

    def _near(
        self, tiles: list[Tile], keys: KeyBlock, bounds: Float32[np.ndarray, " n"], scratch: Scratch
    ) -> Bool[np.ndarray, " scores"]:
        """Which pairs of all these tiles lie within the bounds, end to end."""
        flags, first = scratch.array("flags", (sum(map(_scores, tiles)),), bool), 0
        # inner products lose digits to the longest key of these tiles, not to that of the bound
        if self.metric != "l2":
            bounds = self.allowed(bounds, max(keys.part(part).radius for _, part in tiles))
        for which, part in tiles:
            scores = scratch.array("scores", (len(which), part.stop - part.start))
            self._score(self._taken(which, scratch), keys.part(part), scores)
            near = flags[first : first + scores.size].reshape(scores.shape)
            np.less_equal(scores, bounds[which, None], out=near)
            if self.hides and self.exclude is not None:
                hide(near, np.asarray(np.searchsorted(keys.rows[part], self.exclude[which])), False)
            first += scores.size
        return flags

    def pairs(self, tiles: list[Tile], keys: "Keys", flags: Bool[np.ndarray, " scores"]) -> Iterator["Pairs"]:
        """The pairs of some tiles that are flagged and may be seen; flags lie end to end."""
        which = np.concatenate([which for which, _ in tiles])
        queries = np.array([len(which) for which, _ in tiles])
        widths = runs(np.array([part.stop - part.start for _, part in tiles]), queries, step=0)
        starts, found = np.cumsum(widths) - widths, np.flatnonzero(flags)
        shifts = runs(np.array([part.start for _, part in tiles]), queries, step=0) - starts
        limits = np.append(np.searchsorted(found, starts), len(found))
        for some in _parts(limits):
            counts = np.diff(limits[some.start : some.stop + 1])
            own = runs(np.arange(some.start, some.stop), counts, step=0)
            places = found[limits[some.start] : limits[some.stop]] + shifts.take(own)
            yield Pairs(which[some], counts, self._compared(which.take(own), keys, places))

    def _compared(self, owners: np.ndarray, keys: "Keys", places: np.ndarray) -> Int64[np.ndarray, " p"]:
        """Pairs of queries and keys, `packed`."""
        rows = keys.rows.take(places)
        scores = pair_scores(self.vectors, owners, *keys.whole(places), self.metric)
        if self.exclude is not None:
            scores[(rows >= self.exclude[owners, 0]) & (rows < self.exclude[owners, 1])] = np.inf
        return packed(scores, rows)


class Pairs(NamedTuple):
    """Pairs of queries and keys, query by query: `counts` [q] for each of `which` [q]; `packed` score and row."""

    which: np.ndarray
    counts: np.ndarray
    packed: np.ndarray


def _tiles(whole: Tile) -> Iterator[Tile]:
    """Some queries at a time, whose scores with these keys are TILE_SCORES or those of a single query."""
    which, part = whole
    step = max(1, TILE_SCORES // max(1, part.stop - part.start))
    for some in slices(len(which), step):
        yield which[some], part


def _side_by_side(tiles: Iterable[Tile], least: int) -> Iterator[list[Tile]]:
    """Tiles that are TILE_SCORES together, each as wide as the widest, or a single one, as those of few keys are."""
    # a table is as wide as its widest tile: narrow ones below `least` would be filled up for nothing
    some, queries, width = list[Tile](), 0, 0
    for tile in tiles:
        own = tile[1].stop - tile[1].start
        if some and (min(own, width) < least or (queries + len(tile[0])) * max(own, width) > TILE_SCORES):
            yield some
            some, queries, width = [], 0, 0
        some.append(tile)
        queries, width = queries + len(tile[0]), max(own, width)
    if some:
        yield some


def _scores(tile: Tile) -> int:
    return len(tile[0]) * (tile[1].stop - tile[1].start)


def small_tiles(tiles: Iterable[Tile], most: int) -> Iterator[list[Tile]]:
    """Tiles cut small, whose scores are `most` together, or a single one."""
    some, scores = list[Tile](), 0
    for tile in (small for whole in tiles for small in _tiles(whole)):
        if some and scores + _scores(tile) > most:
            yield some
            some, scores = [], 0
        some.append(tile)
        scores += _scores(tile)
    if some:
        yield some


def _parts(limits: Int64[np.ndarray, " ends"]) -> Iterator[slice]:
    """Some queries at a time, whose pairs are PAIRS or those of a single query, given where those of each begin."""
    first, last = 0, len(limits) - 1
    while first < last:
        stop = max(first + 1, int(np.searchsorted(limits, limits[first] + PAIRS, side="right")) - 1)
        yield slice(first, stop)
        first = stop


def smallest_of(scores: Float32[np.ndarray, "t m"], depth: int, rising: bool) -> Float32[np.ndarray, "t w"]:
    """The smallest of each row, as many as `depth` if there are; changes the order of the rows given.

    >>> smallest_of(np.array([[3.0, 1.0, 2.0]], np.float32), 2, rising=True).tolist()
    [[1.0, 2.0]]
    """
    if depth < scores.shape[1]:
        scores.partition(depth - 1, axis=1)
        scores = scores[:, :depth]
    if rising:
        scores.sort(axis=1)
    return scores


def hide(table: np.ndarray, columns: Int64[np.ndarray, "q 2"], value: float | bool) -> None:
    """Put a value in the columns start … stop - 1 of each row of a table [q, m]."""
    # columns of a row follow each other, so one flat assignment hides all ranges without a mask of the table
    columns = columns.clip(0, table.shape[1])
    firsts = np.arange(0, table.size, table.shape[1]) + columns[:, 0]
    table.reshape(-1)[runs(firsts, columns[:, 1] - columns[:, 0])] = value


def widest(exclude: Int64[np.ndarray, "n 2"] | None) -> int:
    """Rows in the longest excluded range.

    >>> widest(np.array([[2, 2], [5, 9]])), widest(None)
    (4, 0)
    """
    return 0 if exclude is None else max(0, int((exclude[:, 1] - exclude[:, 0]).max(initial=0)))
