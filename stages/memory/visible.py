"""Which keys of a forward batch each of its positions reads, and the blocks of cells that this leaves.

Shapes: N queries, K keys; key j of the batch itself is the position that it stands for, `own` the key of a query.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Visible:
    """Query i reads the keys [start, stop) without those of the hole [hole_start, hole_stop); all int64 [N].

    No hole: `hole_start` and `hole_stop` are the same. Nothing to read: `stop` is not above `start`.
    """

    start: Tensor
    stop: Tensor
    hole_start: Tensor
    hole_stop: Tensor

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, rows: slice) -> "Visible":
        """What some of the queries read."""
        return Visible(self.start[rows], self.stop[rows], self.hole_start[rows], self.hole_stop[rows])

    def to(self, device: torch.device | str) -> "Visible":
        """The same on a device."""
        return Visible(*(bound.to(device) for bound in self._bounds))

    def mask(self, keys: slice) -> Tensor:
        """What is added to the scores of the keys [keys.start, keys.stop): 0, or -inf where one is not read.

        Float [N, keys]. The place of a key is compared with the bounds by differences and least values, which
        are vectorized and take a sixth of the time of comparisons; half a place keeps them from 0.
        """
        key = torch.arange(keys.stop - keys.start, device=self.start.device, dtype=torch.float32)
        start, stop, hole_start, hole_stop = (
            bound.sub(keys.start).clamp(-1, len(key) + 1).float()[:, None] for bound in self._bounds
        )
        inside = torch.minimum(key - (start - 0.5), (stop - 0.5) - key)
        outside = torch.maximum((hole_start - 0.5) - key, key - (hole_stop - 0.5))
        return torch.minimum(inside, outside).mul_(torch.inf).clamp_(max=0)

    def counts(self, starts: Tensor, stops: Tensor) -> Tensor:
        """How many keys of each of B ranges each query reads, int64 [N, B]; starts, stops int64 [B]."""
        start, stop, hole_start, hole_stop = (bound[:, None] for bound in self._bounds)
        hidden = torch.maximum(start, hole_start), torch.minimum(stop, hole_stop)
        return _shared(start, stop, starts, stops) - _shared(*hidden, starts, stops)

    def cuts(self, keys: int) -> list[int]:
        """Keys, rising, between which rows whose bounds are the same all read everything or nothing."""
        bounds = torch.stack(self._bounds).clamp(0, keys)
        return sorted({*bounds.amin(1).tolist(), *bounds.amax(1).tolist()})

    @property
    def _bounds(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.start, self.stop, self.hole_start, self.hole_stop


class Block(NamedTuple):
    """Cells of some queries and keys of which at least one is visible; `whole`: all are.

    `mirror`: the cells of the keys' positions as queries and the queries' as keys, whose products are the same.
    """

    rows: slice
    keys: slice
    whole: bool
    mirror: "Block | None" = None

    @property
    def cells(self) -> int:
        """Products that the block takes."""
        return (self.rows.stop - self.rows.start) * (self.keys.stop - self.keys.start)


def earlier(start: Tensor, own: Tensor) -> Visible:
    """The keys [start, own): local memory if start is the segment's, long memory if it lies before.

    Args: int64 [N] each.
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 3.2.
    """
    return Visible(start, own, start, start)


def others(segment_starts: Tensor, segment_stops: Tensor, own: Tensor, keys: int, local: bool) -> Visible:
    """Every key but those of the query's own segment; with `local`, the earlier ones of that too.

    Args:
        segment_starts, segment_stops: bounds of each query's own segment among the keys, int64 [N].
        own: the query's own key, int64 [N].
        keys: K.
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.3.
    """
    start = torch.zeros_like(own)
    return Visible(start, torch.full_like(own, keys), own if local else segment_starts, segment_stops)


def visible_blocks(visible: Visible, keys: int, rows_at_once: int, keys_at_once: int) -> list[Block]:
    """The blocks that hold all visible cells, at most rows_at_once x keys_at_once each, in the order of their rows.

    Rows are cut where memory begins elsewhere, keys where visibility begins and ends: few blocks are mixed.
    """
    visible = visible.to("cpu")
    blocks = []
    for first, last in pairwise(_row_cuts(visible.start, rows_at_once)):
        rows = slice(first, last)
        blocks += list(_blocks_of_rows(visible[rows], rows, keys, keys_at_once))
    return blocks


def mirrored_blocks(visible: Visible, at_once: int) -> list[Block]:
    """The same where queries are the keys, in squares: of two that mirror each other one is multiplied."""
    visible = visible.to("cpu")
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


def _shared(start: Tensor, stop: Tensor, starts: Tensor, stops: Tensor) -> Tensor:
    """Length of what two ranges have in common."""
    return (torch.minimum(stop, stops) - torch.maximum(start, starts)).clamp_(min=0)
