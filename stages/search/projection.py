"""Short vectors whose distances are never larger than those of the keys: most pairs need no more.

With orthonormal axes V [d, c] and an origin o, y' = (V(y − o), ‖rest of y − o‖) is as long as y − o, and by Cauchy and
Schwarz ‖x' − y'‖ ≤ ‖x − y‖. Where few axes hold most of the keys' variance, few pairs within a bound are lost by it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64

from stages.search.blocks import ListBlocks
from stages.search.keys import widened
from stages.search.lists import DecodedLists
from stages.search.scan import ROUNDING, KeyBlock, Pairs, QueryBlock, Scratch, Tile, hide, small_tiles, squared_lengths

SAMPLE = 4096
"""Keys from which axes are learnt."""
WIDTH = 48
"""Numbers of a short vector: the axes, the rest, and two of their own that make a product a score."""
VARIANCE = 0.8
"""Share of the variance that the axes must hold: of less, too many pairs are near in them."""
NARROWER = 2
"""Times that keys must be wider than short vectors, so that shorter products pay for looking at more pairs."""
MOST_LEFT, TRIED = 0.01, 1 << 24
"""Share of pairs that may be left to whole keys: above it a product of all is faster. So many pairs show it."""
SLACK = 8 * ROUNDING
"""Rounding of short scores, relative to what they are computed from."""
SCORES = 1 << 19
"""Scores of several tiles that a thread computes at a time: 2 MB, so that they are looked at before they leave the
cache."""


def learn_axes(keys: Float32[np.ndarray, "n d"], origin: Float32[np.ndarray, " d"]) -> np.ndarray | None:
    """The directions of the largest variance, float32 [d, WIDTH − 3]; None where they hold too little of it.

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
    # the sign of a direction is arbitrary; the same keys give the same axes
    return np.ascontiguousarray(axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]), np.float32)


def shortened(moved: Float32[np.ndarray, "n d"], axes: Float32[np.ndarray, "d c"]) -> np.ndarray:
    """Coordinates of moved vectors along the axes, and the length of what is left of them, [n, c + 1]."""
    along = moved @ axes
    rest = np.linalg.norm(moved - along @ axes.T, axis=1)
    return np.concatenate([along, rest[:, None]], axis=1)


class ShortKeys(NamedTuple):
    """Keys of some lists that follow each other, as short vectors; a block as `QueryBlock.pairs` takes it.

    Attributes:
        rows: [m] int64.
        vectors: [m, WIDTH] float32.
        stored: [m, d] the keys themselves, float16 or float32.
    """

    rows: np.ndarray
    vectors: np.ndarray
    stored: np.ndarray

    def whole(self, places: Int64[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """The keys at some places, float32 [p, d], and where each of the places is among them."""
        return widened(self.stored[places]), np.arange(len(places))


class ShortBlocks(ListBlocks):
    """Short vectors of all lists, (y', ‖y'‖², 1), with the keys themselves, each made when its list is first read.

    Attributes:
        compared: pairs that were compared by short vectors.
        left: those of them that were left to whole keys.
    """

    def __init__(self, lists: DecodedLists, origin: np.ndarray, axes: np.ndarray) -> None:
        super().__init__(lists, origin, kept_bytes=8 * int(lists.starts[-1]) * (1 + WIDTH), width=WIDTH)
        self.axes, number = axes, int(lists.sizes.argmax())
        self.compared = self.left = 0
        self._stored = np.empty((int(lists.starts[-1]), len(origin)), lists.keys(number, range(1)).dtype)

    def short(self, numbers: list[int], scratch: Scratch) -> tuple[ShortKeys, list[slice]]:
        """The keys of some lists, rising, and which are those of each."""
        block, places = self.together(numbers, scratch)
        first = int(self.lists.starts[numbers[0]])
        return ShortKeys(block.rows, block.vectors, self._stored[first : first + len(block.rows)]), places

    @property
    def pays(self) -> bool:
        """Whether few pairs were left, or may be when as many are compared as show it."""
        return self.left <= MOST_LEFT * max(self.compared, TRIED)

    def count(self, flags: Bool[np.ndarray, " scores"]) -> None:
        """Count pairs, of which the flagged ones were left."""
        # no lock: a count that is lost to another thread changes the time alone
        self.compared += flags.size
        self.left += int(np.count_nonzero(flags))

    def _read(self, number: int, part: range | None, block: KeyBlock, scratch: Scratch) -> None:
        stored = self._stored[self.lists.starts[number] : self.lists.starts[number + 1]]
        stored[:] = self.lists.keys(number)
        keys = widened(stored)
        block.rows[:] = self.lists.ids(number)
        squared_lengths(keys, self.origin, block.lengths, scratch)
        block.vectors[:, : WIDTH - 2] = shortened(keys - self.origin, self.axes)
        block.vectors[:, -2], block.vectors[:, -1] = block.lengths, 1


def short_bytes(keys: int, dim: int) -> int:
    """Most bytes of this many short vectors, with rows, lengths and the keys themselves."""
    return (12 + 4 * WIDTH + 4 * dim) * keys


class ShortQueries:
    """Queries as short vectors (−2 x', 1, −bound): the product with that of a key is above 0 only if it is not near.

    Args:
        bounds: rough scores of the queries, as `QueryBlock.within` takes them.
        blocks: the keys, which count the pairs.
    """

    def __init__(self, queries: QueryBlock, bounds: Float32[np.ndarray, " n"], blocks: ShortBlocks) -> None:
        self.queries, self.blocks = queries, blocks
        farthest = bounds + queries.constant  # squared distances
        slack = np.float32(SLACK) * (queries.magnitude(np.float32(0)) + farthest)
        self.factors = np.empty((len(queries), WIDTH), np.float32)
        # factors of whole keys are −2 (x − o), and lengths change with the vectors
        self.factors[:, : WIDTH - 2] = shortened(queries.factors, blocks.axes)
        self.factors[:, WIDTH - 3] *= -1
        self.factors[:, -2], self.factors[:, -1] = 1, queries.lengths**2 - farthest - slack

    def within(self, tiles: list[Tile], keys: ShortKeys, scratch: Scratch) -> Iterator[Pairs]:
        """As `QueryBlock.within`; of these pairs more lie beyond the bounds."""
        few = sum(len(which) * (part.stop - part.start) for which, part in tiles) <= SCORES
        for some in [tiles] if few else small_tiles(tiles, SCORES):
            yield from self.queries.pairs(some, keys, self._near(some, keys, scratch))

    def _near(self, tiles: list[Tile], keys: ShortKeys, scratch: Scratch) -> Bool[np.ndarray, " scores"]:
        """Which pairs of these tiles may lie within the bounds, end to end."""
        which = np.concatenate([which for which, _ in tiles])
        own = self.factors.take(which, axis=0, out=scratch.array("queries", (len(which), WIDTH)), mode="clip")
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
    queries: Float32[np.ndarray, "q d"], keys: Float32[np.ndarray, "m d"], tiles: list[Tile], out: np.ndarray
) -> None:
    """Products of the queries of each tile, which follow each other, with its keys, end to end.

    >>> queries, keys = np.array([[1, 2], [0, 1]], np.float32), np.eye(2, dtype=np.float32)
    >>> out = np.empty(3, np.float32)
    >>> multiply(queries, keys, [(np.array([7]), slice(0, 2)), (np.array([9]), slice(1, 2))], out)
    >>> out.tolist()
    [1.0, 2.0, 1.0]
    """
    exactly = torch.get_float32_matmul_precision() == "highest"  # else PyTorch may round to fewer digits on the way
    left, right, into = torch.from_numpy(queries), torch.from_numpy(keys).T, torch.from_numpy(out)
    row = first = 0
    for which, part in tiles:
        count, width = len(which), part.stop - part.start
        stop = first + count * width
        if exactly:
            torch.mm(left[row : row + count], right[:, part], out=into[first:stop].view(count, width))
        else:
            np.matmul(queries[row : row + count], keys[part].T, out=out[first:stop].reshape(count, width))
        row, first = row + count, stop
