"""Scores of blocks of cells, one block after the other in the same memory.

Shapes: N queries, K keys, d width; n rows and m keys a block.

Three rooms are as large as the largest block, and serve every block:

- `scores`, in the type of sums: the scores of a block, n x m;
- `mirrored`, if a block has a mirror, in the type of sums: the scores of the mirror, as it lies, n x m too;
- `products`, if products have a narrower type than sums: products before they are widened into the other two,
  and gradients after they are narrowed. Otherwise it is `scores`, where products are made in place.

`sides` writes all three anew. The scores that it returns, one room each, are then the caller's to overwrite, until it
asks for the next block. `narrowed` writes `products` alone, which holds nothing that is still needed by then."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from stages.memory.in_batch.blocks import Block
from stages.memory.in_batch.visible import Visible


class BlockScores:
    """Inner products of queries and keys as scores of base 2, because exp2 takes half the time of exp.

    Attributes:
        sums: type of scores: float64 if the queries are, else float32.
        queries, keys: as they are multiplied for gradients, [N, d] and [K, d], in the type of products.
    """

    def __init__(
        self,
        queries: Tensor,
        keys: Tensor | None,
        visible: Visible,
        blocks: Sequence[Block],
        scale: float,
        dtype: torch.dtype,
    ) -> None:
        """Args:
        queries: [N, d].
        keys: [K, d]; None: the queries.
        visible: of N queries, on the device of the queries.
        blocks: those that are asked for.
        scale: of inner products, for natural scores.
        dtype: of products.
        """
        self.sums = torch.float64 if queries.dtype == torch.float64 else torch.float32
        self.queries = queries.to(dtype)
        self.keys = self.queries if keys is None else keys.to(dtype)
        # The scale goes into [N, d], which costs less than scaling [n, m] of each block.
        self._scaled = (queries.to(self.sums) * (scale * math.log2(math.e))).to(dtype)
        self._visible = visible
        cells = max((block.cells for block in blocks), default=0)
        has_mirror = any(block.mirror for block in blocks)
        self._scores = queries.new_empty(cells, dtype=self.sums)
        self._mirrored = queries.new_empty(cells if has_mirror else 0, dtype=self.sums)
        self._products = self._scores if dtype == self.sums else queries.new_empty(cells, dtype=dtype)

    def sides(self, block: Block) -> list[tuple[Block, Tensor]]:
        """The block and its mirror, if it has one; with the scores [n, m] of each, exactly -inf where not visible.

        Those of a mirror are a transposed matrix.
        """
        queries, keys = self._scaled[block.rows], self.keys[block.keys]
        products = torch.mm(queries, keys.T, out=_matrix(self._products, len(queries), len(keys)))
        mirrored = [] if block.mirror is None else [_copied(products, self._mirrored).T]
        scores = products if self._products is self._scores else _copied(products, self._scores)
        return [
            (side, self._masked(side, matrix)) for side, matrix in zip(block.sides, (scores, *mirrored), strict=True)
        ]

    def narrowed(self, gradient: Tensor) -> Tensor:
        """The gradient [n, m] of a block's scores, in the type of products."""
        return gradient if self._products is self._scores else _copied(gradient, self._products)

    def _masked(self, block: Block, scores: Tensor) -> Tensor:
        return scores if block.whole else scores.masked_fill_(self._visible[block.rows].hides(block.keys), -torch.inf)


def _copied(matrix: Tensor, room: Tensor) -> Tensor:
    return _matrix(room, *matrix.shape).copy_(matrix)


def _matrix(room: Tensor, rows: int, columns: int) -> Tensor:
    """The beginning of a room as a matrix."""
    return room[: rows * columns].view(rows, columns)


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
