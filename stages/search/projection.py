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
    Pairs,
    QueryBlock,
    Scratch,
    squared_lengths,
)
from stages.search.tiles import Tile, hide, small_tiles

SAMPLE = 4096
"""Keys from which axes are learnt."""
WIDTH = 48
"""Elements of a short vector: one for each axis, the length of the rest, and two that turn a
product into a score.
"""
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
    """The directions of the largest variance, float32 [d, WIDTH − 3]; None if they hold too small a
    share of it.

    >>> keys = np.zeros((200, 200), np.float32)
    >>> keys[:, 3] = np.arange(200)
    >>> learn_axes(keys, keys.mean(0))[3].round(3).tolist()[:2]
    [1.0, 0.0]
    """
    if len(keys) < WIDTH or keys.shape[1] < NARROWER * WIDTH:
        return None
    moved = (keys - origin).astype(np.float64)
    variances, directions = np.linalg.eigh(moved.T @ moved)
    most = slice(None, -WIDTH + 2, -1)
    if variances[most].sum() < VARIANCE * variances.sum():
        return None
    axes = directions[:, most]
    # the sign of a direction is arbitrary; it is fixed, so that the same keys give the same axes
    return np.ascontiguousarray(
        axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]), np.float32
    )


def shortened(moved: Float32[np.ndarray, "n d"], axes: Float32[np.ndarray, "d c"]) -> np.ndarray:
    """Coordinates of centred vectors along the axes, and the length of the remainder, [n, c + 1]."""
    along = moved @ axes
    rest = np.linalg.norm(moved - along @ axes.T, axis=1)
    return np.concatenate([along, rest[:, None]], axis=1)


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
        super().__init__(
            lists, origin, kept_bytes=8 * int(lists.starts[-1]) * (1 + WIDTH), width=WIDTH
        )
        self.axes = axes
        number = int(lists.sizes.argmax())
        self.compared = self.left = 0
        self._stored = np.empty(
            (int(lists.starts[-1]), len(origin)), lists.keys(number, slice(1)).dtype
        )

    def short(self, numbers: list[int], scratch: Scratch) -> tuple[ShortKeys, list[slice]]:
        """The keys of some lists, whose numbers rise, and the slice of each list."""
        block, places = self.together(numbers, scratch)
        first = int(self.lists.starts[numbers[0]])
        return ShortKeys(
            block.rows, block.vectors, self._stored[first : first + len(block.rows)]
        ), places

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
        stored = self._stored[self.lists.starts[number] : self.lists.starts[number + 1]]
        stored[:] = self.lists.keys(number)
        keys = widened(stored)
        block.rows[:] = self.lists.ids(number)
        squared_lengths(keys, self.origin, block.lengths, scratch)
        block.vectors[:, : WIDTH - 2] = shortened(keys - self.origin, self.axes)
        block.vectors[:, -2], block.vectors[:, -1] = block.lengths, 1


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
        farthest = bounds + queries.constant  # squared distances
        slack = np.float32(SLACK) * (queries.magnitude(np.float32(0)) + farthest)
        self.factors = np.empty((len(queries), WIDTH), np.float32)
        # factors of whole keys are −2 (x − o), so the length of the rest has to change its sign
        self.factors[:, : WIDTH - 2] = shortened(queries.factors, blocks.axes)
        self.factors[:, WIDTH - 3] *= -1
        self.factors[:, -2], self.factors[:, -1] = 1, queries.lengths**2 - farthest - slack

    def within(self, tiles: list[Tile], keys: ShortKeys, scratch: Scratch) -> Iterator[Pairs]:
        """Pairs like those of `QueryBlock.within`, with more of them beyond the bounds."""
        few = sum(len(which) * (part.stop - part.start) for which, part in tiles) <= SCORES
        for some in [tiles] if few else small_tiles(tiles, SCORES):
            yield from self.queries.pairs(some, keys, self._near(some, keys, scratch))

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
        which = np.concatenate([which for which, _ in tiles])
        own = self.factors.take(
            which, axis=0, out=scratch.array("queries", (len(which), WIDTH)), mode="clip"
        )
        sizes = [len(which) * (part.stop - part.start) for which, part in tiles]
        scores = scratch.array("scores", (sum(sizes),))
        multiply(own, keys.vectors, tiles, scores)
        flags = np.less_equal(scores, 0, out=scratch.array("flags", scores.shape, bool))
        exclude = self.queries.exclude
        if self.queries.hides and exclude is not None:
            first = 0
            for (which, part), size in zip(tiles, sizes, strict=True):
                table = flags[first : first + size].reshape(len(which), -1)
                hide(table, np.asarray(np.searchsorted(keys.rows[part], exclude[which])), False)
                first += size
        self.blocks.count(flags)
        return flags


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
    exactly = (
        torch.get_float32_matmul_precision() == "highest"
    )  # else PyTorch may round float32 to fewer digits
    left = torch.from_numpy(queries)
    right = torch.from_numpy(keys).T
    into = torch.from_numpy(out)
    row = first = 0
    for which, part in tiles:
        count = len(which)
        width = part.stop - part.start
        stop = first + count * width
        if exactly:
            torch.mm(
                left[row : row + count], right[:, part], out=into[first:stop].view(count, width)
            )
        else:
            np.matmul(
                queries[row : row + count], keys[part].T, out=out[first:stop].reshape(count, width)
            )
        row = row + count
        first = stop
