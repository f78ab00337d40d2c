"""Where in a block of cells the keys stand whose token is the one that the row's query predicts.

Shapes: N queries, K keys; n rows a block, h matches (cells that hold their row's target).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from stages.memory.in_batch.blocks import Block


class Matches(NamedTuple):
    """The cells of a block that hold their row's target, visible or not: row, and place in memory; int64 [h]."""

    rows: Tensor
    cells: Tensor


class _Runs(NamedTuple):
    """Runs of a block's rows among the sorted keys: first key, length, int64 [n] each; and the number of matches."""

    first: Tensor
    counts: Tensor
    matches: int


class TargetMatches:
    """Finds the target cells of blocks.

    Keys are sorted by token, then place, so that the keys of a token within a block are a run. Runs are found
    for all blocks at once: the host waits for the device once, to learn how many matches each block has.
    Holds 8 bytes a key, and 16 a row of each block: 1/128 byte a cell where blocks are 2,048 keys wide.
    """

    def __init__(self, targets: Int64[Tensor, " N"], values: Int64[Tensor, " K"], blocks: Sequence[Block]) -> None:
        """Args:
        targets: the token that each query predicts, int64 [N].
        values: the token that followed each key, int64 [K].
        blocks: those that `matches` is asked for, with their mirrors.
        """
        places = torch.arange(len(values), device=values.device)
        ordered, self._order = (values * len(values) + places).sort()
        wanted = targets * len(values)
        sides = [side for block in blocks for side in block.sides]
        bounds = [_run(ordered, wanted[side.rows], side.keys) for side in sides]
        matches = torch.stack([counts.sum() for _, counts in bounds]).tolist() if bounds else []
        self._runs = {
            _corner(side): _Runs(*bound, count) for side, bound, count in zip(sides, bounds, matches, strict=True)
        }

    def matches(self, block: Block, strides: tuple[int, ...]) -> Matches:
        """The matches of a block whose matrix has these strides, row by row."""
        first, counts, matches = self._runs[_corner(block)]
        rows = torch.repeat_interleave(counts, output_size=matches)
        before = counts.cumsum(0) - counts
        places = torch.arange(matches, device=rows.device) + (first - before).index_select(0, rows)
        columns = self._order.index_select(0, places).sub_(block.keys.start)
        down, across = strides
        return Matches(rows, columns.mul_(across).add_(rows, alpha=down))


def _run(
    ordered: Int64[Tensor, " K"], wanted: Int64[Tensor, " n"], keys: slice
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """Beginning and length of the runs of wanted tokens [n] among the sorted keys, of the places `keys` alone."""
    first = torch.searchsorted(ordered, wanted + keys.start)
    return first, torch.searchsorted(ordered, wanted + keys.stop) - first


def _corner(block: Block) -> tuple[int, int]:
    return block.rows.start, block.keys.start
