"""Short vectors whose distances are at most those of the keys, so that they rule out most pairs.

Let V [d, c] be orthonormal axes and o an origin. Then y' = (Vᵀ(y − o), ‖rest of y − o‖) is as long
as y − o. By Cauchy-Schwarz, ‖x' − y'‖ ≤ ‖x − y‖. If few axes hold most of the keys' variance, short
vectors rule out most pairs beyond a bound.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64

from stages.search.blocks import ListBlocks
from stages.search.keys import widened
from stages.search.lists import InvertedLists
from stages.search.scan import (
    ROUNDING,
    KeyBlock,
    QueryBlock,
    ScoredPairs,
    Scratch,
    squared_lengths,
)
from stages.search.tiles import Tile, hide, num_scores, small_tiles

SAMPLE = 4096
"""Keys from which axes are learnt."""
WIDTH = 48
"""Elements of a short vector: one for each axis, the length of the rest, and two that turn a
product into a score.
"""
AXES = WIDTH - 3
"""Axes of a short vector."""
VARIANCE = 0.8
"""Share of the variance that the axes must hold; with less, too many pairs are near as short
vectors.
"""
NARROWER = 2
"""Least ratio of the widths of keys and short vectors; with less, shorter products do not pay for
more pairs.
"""
MOST_LEFT = 0.01
TRIED = 1 << 20
"""Most pairs that may be left to whole keys, as a share; with more, products of whole keys are
faster. TRIED pairs are enough to measure it."""
SLACK = 8 * ROUNDING
"""Rounding error of short scores, relative to the terms they are computed from."""
SCORES = 1 << 19
"""Scores of several tiles that a thread computes at a time: 2 MB, so that they are used while they
are in the cache."""


def learn_axes(
    keys: Float32[np.ndarray, "n d"], origin: Float32[np.ndarray, " d"]
) -> np.ndarray | None:
    """The directions of the largest variance, float32 [d, AXES], the largest first; None if they
    hold too small a share of it, or keys are too few or too narrow.

    >>> keys = np.zeros((200, 200), np.float32)
    >>> keys[:, 3] = np.arange(200)
    >>> learn_axes(keys, keys.mean(0))[3].round(3).tolist()[:2]
    [1.0, 0.0]
    """
    num_keys, dim = keys.shape
    if num_keys < WIDTH or dim < NARROWER * WIDTH:
        return None
    centred = (keys - origin).astype(np.float64)
    scatter = centred.T @ centred
    variances, directions = np.linalg.eigh(scatter)

    # `eigh` sorts eigenvalues in ascending order: the last columns, backwards.
    largest = slice(-1, -AXES - 1, -1)
    if variances[largest].sum() < VARIANCE * variances.sum():
        return None
    axes = directions[:, largest]

    # The sign of a direction is arbitrary. Its largest coordinate is made positive, so that the
    # same keys give the same axes.
    index_of_largest = np.abs(axes).argmax(axis=0)
    largest_coordinates = axes[index_of_largest, np.arange(AXES)]
    signed_axes = axes * np.sign(largest_coordinates)
    return np.ascontiguousarray(signed_axes, np.float32)


def shortened(moved: Float32[np.ndarray, "n d"], axes: Float32[np.ndarray, "d c"]) -> np.ndarray:
    """Coordinates of centred vectors along the axes, and the length of the remainder, [n, c + 1].

    >>> shortened(np.array([[2, 3, 4]], np.float32), np.array([[1], [0], [0]], np.float32)).tolist()
    [[2.0, 5.0]]
    """
    along = moved @ axes
    remainder = moved - along @ axes.T
    lengths = np.linalg.norm(remainder, axis=1)
    return np.concatenate([along, lengths[:, None]], axis=1)


class ShortKeys(NamedTuple):
    """Short vectors of the keys of consecutive lists; a block for `QueryBlock.pairs`.

    Attributes:
        rows: [m] int64.
        vectors: [m, WIDTH] float32.
        stored: [m, d] the keys themselves, float16 or float32.
    """

    rows: np.ndarray
    vectors: np.ndarray
    stored: np.ndarray

    def whole(self, places: Int64[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """The keys at some places, float32 [p, d], and the position of each place among them."""
        return widened(self.stored[places]), np.arange(len(places))


class ShortBlocks(ListBlocks):
    """Short vectors (y', ‖y'‖², 1) and keys of all lists; those of a list are made when it is first
    read.

    Attributes:
        compared: number of pairs that were compared as short vectors.
        left: number of these pairs that were left to whole keys.
    """

    def __init__(self, lists: InvertedLists, origin: np.ndarray, axes: np.ndarray) -> None:
        num_keys = int(lists.starts[-1])
        # eight bytes of a row's number, and as many numbers of four bytes as a vector and its length
        kept_bytes = 8 * num_keys * (1 + WIDTH)
        super().__init__(lists, origin, kept_bytes=kept_bytes, width=WIDTH)
        self.axes = axes
        self.compared = 0
        self.left = 0

        # any key shows the dtype of all; the longest list is not empty
        longest = int(lists.sizes.argmax())
        dtype = lists.keys(longest, slice(1)).dtype
        self._stored = np.empty((num_keys, len(origin)), dtype)

    def short(self, numbers: list[int], scratch: Scratch) -> tuple[ShortKeys, list[slice]]:
        """The keys of some lists, whose numbers rise, and the slice of each list."""
        block, places = self.together(numbers, scratch)
        first = int(self.lists.starts[numbers[0]])
        stored = self._stored[first : first + len(block.rows)]
        return ShortKeys(block.rows, block.vectors, stored), places

    @property
    def pays(self) -> bool:
        """Whether few pairs were left to whole keys; True while too few were compared to tell."""
        return self.left <= MOST_LEFT * max(self.compared, TRIED)

    def count(self, flags: Bool[np.ndarray, " scores"]) -> None:
        """Count compared pairs; the flagged ones are left to whole keys."""
        # no lock: a lost count only affects speed
        self.compared += flags.size
        self.left += int(np.count_nonzero(flags))

    def _read(self, number: int, part: slice, block: KeyBlock, scratch: Scratch) -> None:
        first = self.lists.starts[number]
        stop = self.lists.starts[number + 1]
        stored = self._stored[first:stop]
        stored[:] = self.lists.keys(number)
        keys = widened(stored)

        block.rows[:] = self.lists.ids(number)
        squared_lengths(keys, self.origin, block.lengths, scratch)

        # the last two turn a product with a query into a score
        centred = keys - self.origin
        block.vectors[:, : WIDTH - 2] = shortened(centred, self.axes)
        block.vectors[:, -2] = block.lengths
        block.vectors[:, -1] = 1


def short_bytes(keys: int, dim: int) -> int:
    """Most bytes of the short vectors of `keys` keys, with rows, lengths and the keys themselves."""
    return (12 + 4 * WIDTH + 4 * dim) * keys


class ShortQueries:
    """Queries as short vectors (−2 x', 1, −bound). A positive product with a short key shows that
    the pair is not near.

    Args:
        bounds: rough scores of the queries, as in `QueryBlock.within`.
        blocks: the short vectors of the keys; they count the pairs.
    """

    def __init__(
        self, queries: QueryBlock, bounds: Float32[np.ndarray, " n"], blocks: ShortBlocks
    ) -> None:
        self.queries = queries
        self.blocks = blocks

        # [n], squared
        max_distances = bounds + queries.constant
        squared_lengths = queries.lengths**2
        largest_terms = queries.magnitude(np.float32(0)) + max_distances
        slack = np.float32(SLACK) * largest_terms

        self.factors = np.empty((len(queries), WIDTH), np.float32)
        self.factors[:, : AXES + 1] = shortened(queries.factors, blocks.axes)
        # factors of whole keys are −2 (x − o), so the length of the rest has to change its sign
        self.factors[:, AXES] *= -1
        self.factors[:, -2] = 1
        self.factors[:, -1] = squared_lengths - max_distances - slack

    def within(self, tiles: list[Tile], keys: ShortKeys, scratch: Scratch) -> Iterator[ScoredPairs]:
        """Pairs like those of `QueryBlock.within`, with more of them beyond the bounds."""
        fits = sum(map(num_scores, tiles)) <= SCORES
        groups = [tiles] if fits else small_tiles(tiles, SCORES)
        for group in groups:
            flags = self._near(group, keys, scratch)
            yield from self.queries.pairs(group, keys, flags)

    def try_out(
        self, which: Int64[np.ndarray, " q"], part: slice, keys: ShortKeys, scratch: Scratch
    ) -> None:
        """Compare some queries with some keys, only to count the pairs that would be left to whole
        keys.
        """
        self._near([(which, part)], keys, scratch)

    def _near(
        self, tiles: list[Tile], keys: ShortKeys, scratch: Scratch
    ) -> Bool[np.ndarray, " scores"]:
        """Flags of the pairs that may lie within the bounds, of all tiles end to end."""
        which = np.concatenate([queries for queries, _ in tiles])
        factors = scratch.array("queries", (len(which), WIDTH))
        # with the mode "raise", NumPy would fill a copy of `out` first
        self.factors.take(which, axis=0, out=factors, mode="clip")

        total = sum(map(num_scores, tiles))
        scores = scratch.array("scores", (total,))
        multiply(factors, keys.vectors, tiles, scores)
        flags = np.less_equal(scores, 0, out=scratch.array("flags", scores.shape, bool))
        self._hide_excluded(flags, tiles, keys)
        self.blocks.count(flags)
        return flags

    def _hide_excluded(
        self, flags: Bool[np.ndarray, " scores"], tiles: list[Tile], keys: ShortKeys
    ) -> None:
        """Clear the flags of rows that a query may not see, if long ranges are hidden."""
        exclude = self.queries.exclude
        if not self.queries.hides or exclude is None:
            return
        first = 0
        for queries, part in tiles:
            stop = first + num_scores((queries, part))
            # a view: what is written to it stands in `flags`
            table = flags[first:stop].reshape(len(queries), -1)
            # rows rise, so an excluded range of them is a range of columns
            columns = np.searchsorted(keys.rows[part], exclude[queries])
            hide(table, np.asarray(columns), False)
            first = stop


def multiply(
    queries: Float32[np.ndarray, "q d"],
    keys: Float32[np.ndarray, "m d"],
    tiles: list[Tile],
    out: np.ndarray,
) -> None:
    """Products of the queries and keys of each tile, end to end; `queries` holds the queries of all
    tiles in order.

    >>> queries, keys = np.array([[1, 2], [0, 1]], np.float32), np.eye(2, dtype=np.float32)
    >>> out = np.empty(3, np.float32)
    >>> multiply(queries, keys, [(np.array([7]), slice(0, 2)), (np.array([9]), slice(1, 2))], out)
    >>> out.tolist()
    [1.0, 2.0, 1.0]
    """
    # PyTorch is faster, but may round float32 to fewer digits
    exactly = torch.get_float32_matmul_precision() == "highest"
    query_matrix = torch.from_numpy(queries)
    key_matrix = torch.from_numpy(keys).T
    products = torch.from_numpy(out)

    first_query = 0
    first = 0
    for which, part in tiles:
        shape = (len(which), part.stop - part.start)
        rows = slice(first_query, first_query + shape[0])
        places = slice(first, first + shape[0] * shape[1])
        if exactly:
            table = products[places].view(shape)
            torch.mm(query_matrix[rows], key_matrix[:, part], out=table)
        else:
            numpy_table = out[places].reshape(shape)
            np.matmul(queries[rows], keys[part].T, out=numpy_table)
        first_query = rows.stop
        first = places.stop
