"""Blocks of the [queries, keys] matrix that have visible cells; the rest of the matrix is never
computed.

Shapes: N queries, K keys; n rows (queries) and m keys a block.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from stages.memory.in_batch.visible import Visible

ROWS_AT_ONCE = {"cpu": 256, "cuda": 2048}
KEYS_AT_ONCE = {"cpu": 2048, "cuda": 8192}
"""Maximum number of keys in a block, by device."""
SQUARE_AT_ONCE = {"cpu": 1024, "cuda": 4096}
"""Rows and keys of a block that has a mirror."""


class ScoreBlock(NamedTuple):
    """A range of queries and a range of keys with at least one visible cell; `whole`: all cells are
    visible.

    `mirror`: the block with queries and keys exchanged, which has the same products.
    """

    rows: slice
    keys: slice
    whole: bool
    mirror: "ScoreBlock | None" = None

    @property
    def sides(self) -> "tuple[ScoreBlock, ...]":
        """The block, and its mirror if it has one."""
        return (self,) if self.mirror is None else (self, self.mirror)

    @property
    def cells(self) -> int:
        """Number of cells, and so of inner products."""
        num_rows = self.rows.stop - self.rows.start
        num_keys = self.keys.stop - self.keys.start
        return num_rows * num_keys


def fewest_products(visible: Visible, keys: int, own_keys: bool, device: str) -> list[ScoreBlock]:
    """The blocks that hold all visible cells, cut so that they take the fewest products.

    Args:
        visible: the keys that each query reads.
        keys: K.
        own_keys: whether the keys are the queries, so that blocks can have mirrors.
        device: type of the device, which determines the size of blocks.

    Each of three positions sees those before it, which takes one block of 6 cells:

    >>> own, none = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    >>> sum(block.cells for block in fewest_products(Visible(none, own, none, none), 3, own_keys=False, device="cpu"))
    6
    """
    kind = device if device in ROWS_AT_ONCE else "cpu"
    # Blocks are cut by the host, whatever device computes them.
    visible = visible.to("cpu")
    blocks = visible_blocks(visible, keys, ROWS_AT_ONCE[kind], KEYS_AT_ONCE[kind])
    if not own_keys:
        return blocks

    # Mirrors halve the products, but squares hold more invisible cells: it depends on the batch
    # which takes fewer.
    squares = mirrored_blocks(visible, SQUARE_AT_ONCE[kind])
    return min(blocks, squares, key=_num_products)


def _num_products(blocks: list[ScoreBlock]) -> int:
    """Inner products that blocks take; a mirror takes none."""
    return sum(block.cells for block in blocks)


def visible_blocks(
    visible: Visible, keys: int, rows_at_once: int, keys_at_once: int
) -> list[ScoreBlock]:
    """The blocks that hold all visible cells, at most rows_at_once x keys_at_once each, in the
    order of their rows.

    Rows are cut where their first visible key changes, keys where visibility begins and ends. So
    most blocks are whole.

    Two segments of two positions, each of which reads its own segment, take two blocks of four
    cells:

    >>> bounds = torch.tensor([0, 0, 2, 2]), torch.tensor([2, 2, 4, 4])
    >>> blocks = visible_blocks(Visible(*bounds, bounds[0], bounds[0]), keys=4, rows_at_once=2, keys_at_once=4)
    >>> [(block.rows, block.keys, block.whole) for block in blocks]
    [(slice(0, 2, None), slice(0, 2, None), True), (slice(2, 4, None), slice(2, 4, None), True)]
    """
    blocks = []
    for first, last in pairwise(_row_cuts(visible.start, rows_at_once)):
        rows = slice(first, last)
        blocks += list(_blocks_of_rows(visible[rows], rows, keys, keys_at_once))
    return blocks


def mirrored_blocks(visible: Visible, at_once: int) -> list[ScoreBlock]:
    """Square blocks that hold all visible cells, if the queries are the keys; of two mirrors, one
    is multiplied.

    Four positions that read all, in squares of size two: two on the diagonal, and one with its
    mirror.

    >>> everything = Visible(*(torch.full((4,), n) for n in (0, 4, 0, 0)))
    >>> [(block.rows.start, block.keys.start, block.mirror is not None) for block in mirrored_blocks(everything, 2)]
    [(0, 0, False), (2, 0, True), (2, 2, False)]
    """
    size = len(visible)
    tiles = [slice(first, min(first + at_once, size)) for first in range(0, size, at_once)]
    starts = torch.tensor([tile.start for tile in tiles], dtype=torch.int64)
    stops = torch.tensor([tile.stop for tile in tiles], dtype=torch.int64)
    # Visible cells of each tile of rows, by tile of keys.
    counts = [visible[tile].counts(starts, stops).sum(0).tolist() for tile in tiles]

    def visible_block(row: int, column: int) -> ScoreBlock | None:
        count = counts[row][column]
        if not count:
            return None
        block = ScoreBlock(tiles[row], tiles[column], whole=False)
        return block._replace(whole=count == block.cells)

    blocks: list[ScoreBlock] = []
    for row in range(len(tiles)):
        for column in range(row):
            below = visible_block(row, column)
            above = visible_block(column, row)
            if below and above:
                blocks.append(below._replace(mirror=above))
            elif below:
                blocks.append(below)
            elif above:
                blocks.append(above)

        # A tile on the diagonal is its own mirror, and is multiplied once.
        diagonal = visible_block(row, row)
        if diagonal:
            blocks.append(diagonal)
    return blocks


def _row_cuts(start: Tensor, at_once: int) -> list[int]:
    """Bounds of blocks of rows: where `start` changes, unless a block would have less than half the
    maximum size.
    """
    # Row i differs from the row before it.
    changes = (start.diff() != 0).nonzero().squeeze(1) + 1
    cuts = [0]
    for change in (*changes.tolist(), len(start)):
        first = cuts[-1]
        num_rows = change - first
        is_last = change == len(start)
        if 2 * num_rows >= at_once or is_last:
            # As many parts as needed, all of nearly the same size.
            num_parts = math.ceil(num_rows / at_once)
            for part in range(1, num_parts + 1):
                cuts.append(first + num_rows * part // num_parts)
    return cuts


def _blocks_of_rows(
    visible: Visible, rows: slice, keys: int, keys_at_once: int
) -> Iterator[ScoreBlock]:
    """The blocks of some rows that have visible cells, in order of keys; `visible`: of these rows."""
    ranges: list[slice] = []
    for begin, end in pairwise(visible.cuts(keys)):
        for start in range(begin, end, keys_at_once):
            ranges.append(slice(start, min(start + keys_at_once, end)))

    starts = torch.tensor([key_range.start for key_range in ranges], dtype=torch.int64)
    stops = torch.tensor([key_range.stop for key_range in ranges], dtype=torch.int64)
    counts = visible.counts(starts, stops).sum(0).tolist()
    for key_range, count in zip(ranges, counts, strict=True):
        if count:
            block = ScoreBlock(rows, key_range, whole=False)
            yield block._replace(whole=count == block.cells)
