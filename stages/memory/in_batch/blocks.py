"""Blocks of the [queries, keys] matrix that have visible cells; the rest of the matrix is never
computed.

Shapes: N queries, K keys; n rows (queries) and m keys a block.
"""

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


class Block(NamedTuple):
    """A range of queries and a range of keys with at least one visible cell; `whole`: all cells are
    visible.

    `mirror`: the block with queries and keys exchanged, which has the same products.
    """

    rows: slice
    keys: slice
    whole: bool
    mirror: "Block | None" = None

    @property
    def sides(self) -> "tuple[Block, ...]":
        """The block, and its mirror if it has one."""
        return (self,) if self.mirror is None else (self, self.mirror)

    @property
    def cells(self) -> int:
        """Number of cells, and so of inner products."""
        return (self.rows.stop - self.rows.start) * (self.keys.stop - self.keys.start)


def fewest_products(visible: Visible, keys: int, own_keys: bool, device: str) -> list[Block]:
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
    visible = visible.to("cpu")
    # Mirrors halve the products, but squares hold more invisible cells: it depends on the batch
    # which takes fewer.
    candidates = [visible_blocks(visible, keys, ROWS_AT_ONCE[kind], KEYS_AT_ONCE[kind])]
    if own_keys:
        candidates.append(mirrored_blocks(visible, SQUARE_AT_ONCE[kind]))
    return min(candidates, key=lambda blocks: sum(block.cells for block in blocks))


def visible_blocks(
    visible: Visible, keys: int, rows_at_once: int, keys_at_once: int
) -> list[Block]:
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


def mirrored_blocks(visible: Visible, at_once: int) -> list[Block]:
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

    def block(row: int, column: int) -> Block | None:
        count = counts[row][column]
        if not count:
            return None
        result = Block(tiles[row], tiles[column], False)
        return result._replace(whole=count == result.cells)

    blocks: list[Block] = []
    for row in range(len(tiles)):
        for column in range(row + 1):
            below = block(row, column)
            # A tile on the diagonal is its own mirror, and is multiplied once.
            above = block(column, row) if column < row else None
            if below and above:
                blocks.append(below._replace(mirror=above))
            elif below or above:
                blocks += [side for side in (below, above) if side]
    return blocks


def _row_cuts(start: Tensor, at_once: int) -> list[int]:
    """Bounds of blocks of rows: where `start` changes, unless a block would have less than half the
    maximum size.
    """
    changes = (start.diff() != 0).nonzero().squeeze(1).add(1).tolist()
    cuts = [0]
    for change in (*changes, len(start)):
        first = cuts[-1]
        rows = change - first
        if 2 * rows >= at_once or change == len(start):
            # As many parts as needed, all of nearly the same size.
            parts = -(-rows // at_once)
            cuts += [first + rows * part // parts for part in range(1, parts + 1)]
    return cuts


def _blocks_of_rows(visible: Visible, rows: slice, keys: int, keys_at_once: int) -> Iterator[Block]:
    pieces: list[tuple[int, int]] = []
    for begin, end in pairwise(visible.cuts(keys)):
        for start in range(begin, end, keys_at_once):
            pieces.append((start, min(start + keys_at_once, end)))
    if not pieces:
        return

    starts, stops = torch.tensor(pieces).T
    counts = visible.counts(starts, stops).sum(0).tolist()
    for (start, stop), count in zip(pieces, counts, strict=True):
        if count:
            cells = len(visible) * (stop - start)
            yield Block(rows, slice(start, stop), whole=count == cells)
