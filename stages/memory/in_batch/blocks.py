"""The blocks of cells in which queries see keys: what is computed at once, and what is never computed.

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
    """Entries of some queries and keys of which at least one is visible; `whole`: all are.

    `mirror`: the cells of the keys' positions as queries and the queries' as keys, whose products are the same.
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
        """Products that the block takes."""
        return (self.rows.stop - self.rows.start) * (self.keys.stop - self.keys.start)


def fewest_products(visible: Visible, keys: int, own_keys: bool, device: str) -> list[Block]:
    """The blocks that hold all visible cells, cut in the way that takes the fewest products.

    Args:
        keys: K.
        own_keys: whether the keys are the queries, so that blocks can be mirrored.
        device: the kind that computes, which says how large blocks are.

    Each of three positions sees those before it: one block of 9 cells, or squares that hold a cell and its mirror.

    >>> own, none = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    >>> sum(block.cells for block in fewest_products(Visible(none, own, none, none), 3, own_keys=False, device="cpu"))
    6
    """
    kind = device if device in ROWS_AT_ONCE else "cpu"
    visible = visible.to("cpu")
    # Mirrors halve the products, but their squares hold more cells that nobody sees: batches differ in which is less.
    ways = [visible_blocks(visible, keys, ROWS_AT_ONCE[kind], KEYS_AT_ONCE[kind])]
    if own_keys:
        ways.append(mirrored_blocks(visible, SQUARE_AT_ONCE[kind]))
    return min(ways, key=lambda blocks: sum(block.cells for block in blocks))


def visible_blocks(visible: Visible, keys: int, rows_at_once: int, keys_at_once: int) -> list[Block]:
    """The blocks that hold all visible cells, at most rows_at_once x keys_at_once each, in the order of their rows.

    Rows are cut where memory begins elsewhere, keys where visibility begins and ends: few blocks are mixed.

    Two segments of two positions that each read all of their own: two blocks of four, of which the rest is never made.

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
    """The same where queries are the keys, in squares: of two that mirror each other one is multiplied.

    Four positions that read all, in squares of two: two on the diagonal, and one with its mirror.

    >>> everything = Visible(*(torch.full((4,), n) for n in (0, 4, 0, 0)))
    >>> [(block.rows.start, block.keys.start, block.mirror is not None) for block in mirrored_blocks(everything, 2)]
    [(0, 0, False), (2, 0, True), (2, 2, False)]
    """
    size = len(visible)
    tiles = [slice(first, min(first + at_once, size)) for first in range(0, size, at_once)]
    bounds = torch.tensor([(tile.start, tile.stop) for tile in tiles], dtype=torch.int64).view(-1, 2).T
    counts = [visible[tile].counts(*bounds).sum(0).tolist() for tile in tiles]

    def block(row: int, column: int) -> Block | None:
        found = Block(tiles[row], tiles[column], False)
        count = counts[row][column]
        return found._replace(whole=count == found.cells) if count else None

    blocks = []
    for row in range(len(tiles)):
        for column in range(row + 1):
            one, other = block(row, column), block(column, row) if column < row else None
            if one and other:
                one = one._replace(mirror=other)
            blocks += [found] if (found := one or other) else []
    return blocks


def _row_cuts(start: Tensor, at_once: int) -> list[int]:
    """Where blocks of rows begin and end: where start changes, unless the block would be less than half a full one."""
    changes = (start.diff() != 0).nonzero().squeeze(1).add(1).tolist()
    cuts = [0]
    for change in (*changes, len(start)):
        first, rows = cuts[-1], change - cuts[-1]
        if 2 * rows >= at_once or change == len(start):
            parts = -(-rows // at_once)
            cuts += [first + rows * part // parts for part in range(1, parts + 1)]
    return cuts


def _blocks_of_rows(visible: Visible, rows: slice, keys: int, keys_at_once: int) -> Iterator[Block]:
    pieces = [
        (start, min(start + keys_at_once, stop))
        for begin, stop in pairwise(visible.cuts(keys))
        for start in range(begin, stop, keys_at_once)
    ]
    if not pieces:
        return
    counts = visible.counts(*torch.tensor(pieces).T).sum(0).tolist()
    for (start, stop), count in zip(pieces, counts, strict=True):
        if count:
            yield Block(rows, slice(start, stop), count == len(visible) * (stop - start))
