"""Scores of blocks of cells, computed one after the other in the same buffers.

Shapes: N queries, K keys, d width; n rows and m keys a block.

Three buffers have the size of the largest block, and serve every block:

- `scores`, in the dtype of sums: the scores of a block, n x m;
- `mirrored`, if a block has a mirror, in the dtype of sums: the scores of the mirror, stored as n x
  m too;
- `products`, if products have a narrower dtype than sums: products before they are widened into the
  other two, and gradients after they are narrowed. Otherwise it is `scores`, and products are
  computed in place.

`sides` overwrites all three. The caller may overwrite the scores that it returns, until it asks for
the next block. `narrowed` overwrites only `products`, which is free by then."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from stages.memory.in_batch.blocks import Block
from stages.memory.in_batch.visible import Visible


class BlockScores:
    """Inner products of queries and keys as scores of base 2, because exp2 takes half the time of
    exp.

    Attributes:
        sums: dtype of scores: float64 if the queries are, else float32.
        queries, keys: unscaled factors of gradients, [N, d] and [K, d], in the dtype of products.
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
        visible: keys that each of the N queries reads, on the device of the queries.
        blocks: all blocks that `sides` will get.
        scale: factor of the inner products in natural scores.
        dtype: dtype of products.
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
        self._products = (
            self._scores if dtype == self.sums else queries.new_empty(cells, dtype=dtype)
        )

    def sides(self, block: Block) -> list[tuple[Block, Tensor]]:
        """The block and its mirror, if it has one, each with its scores [n, m]; -inf where not
        visible.

        The scores of a mirror are a transposed view.
        """
        queries = self._scaled[block.rows]
        keys = self.keys[block.keys]
        products = torch.mm(queries, keys.T, out=_matrix(self._products, len(queries), len(keys)))

        # The mirror is copied before the scores are masked in place.
        matrices: list[Tensor] = []
        if block.mirror is not None:
            matrices.append(_copied(products, self._mirrored).T)
        in_place = self._products is self._scores
        matrices.insert(0, products if in_place else _copied(products, self._scores))
        return [
            (side, self._masked(side, matrix))
            for side, matrix in zip(block.sides, matrices, strict=True)
        ]

    def narrowed(self, gradient: Tensor) -> Tensor:
        """The gradient [n, m] of a block's scores, in the dtype of products."""
        return gradient if self._products is self._scores else _copied(gradient, self._products)

    def _masked(self, block: Block, scores: Tensor) -> Tensor:
        if block.whole:
            return scores
        hidden = self._visible[block.rows].hides(block.keys)
        return scores.masked_fill_(hidden, -torch.inf)


def _copied(matrix: Tensor, room: Tensor) -> Tensor:
    return _matrix(room, *matrix.shape).copy_(matrix)


def _matrix(room: Tensor, rows: int, columns: int) -> Tensor:
    """The beginning of a buffer as a matrix."""
    return room[: rows * columns].view(rows, columns)


class Matches(NamedTuple):
    """The cells in a block that hold their row's target, visible or not, int64 [h] each."""

    rows: Tensor
    cells: Tensor
    """Memory offset of each cell in the block's scores, since a mirror's are transposed."""


class _Runs(NamedTuple):
    """Runs of matching keys among the sorted keys: first key and length for each row, int64 [n],
    and their total.
    """

    first: Tensor
    counts: Tensor
    matches: int


class TargetMatches:
    """Finds the target cells of blocks.

    Keys are sorted by token, then index. So the keys of a token within a block are consecutive.
    Runs are found for all blocks together. So the host waits for the device once, for the number of
    matches of each block. This takes 8 bytes for each key, and 16 for each row of a block: 1/128
    byte per cell if blocks are 2,048 keys wide.
    """

    def __init__(
        self, targets: Int64[Tensor, " N"], values: Int64[Tensor, " K"], blocks: Sequence[Block]
    ) -> None:
        """Args:
        targets: the token that each query predicts, int64 [N].
        values: the token that followed each key, int64 [K].
        blocks: all blocks that `matches` will get; their mirrors are included.
        """
        # A key's token and index as one number: sorted by token, then by index.
        indices = torch.arange(len(values), device=values.device)
        ordered, self._order = (values * len(values) + indices).sort()
        first_of_target = targets * len(values)

        sides = [side for block in blocks for side in block.sides]
        bounds = [_run(ordered, first_of_target[side.rows], side.keys) for side in sides]
        # One transfer to the host for all blocks.
        matches = torch.stack([counts.sum() for _, counts in bounds]).tolist() if bounds else []

        self._runs = dict[tuple[int, int], _Runs]()
        for side, (first, counts), number in zip(sides, bounds, matches, strict=True):
            self._runs[_corner(side)] = _Runs(first, counts, number)

    def matches(self, block: Block, strides: tuple[int, ...]) -> Matches:
        """Matches of a block in order of row; `strides` are those of its matrix of scores."""
        first, counts, number = self._runs[_corner(block)]
        rows = torch.repeat_interleave(counts, output_size=number)

        # The matches of a row are consecutive, from the start of its run among the sorted keys.
        matches_before = counts.cumsum(0) - counts
        offset = (first - matches_before).index_select(0, rows)
        ranks = torch.arange(number, device=rows.device) + offset
        columns = self._order.index_select(0, ranks).sub_(block.keys.start)

        row_stride, column_stride = strides
        cells = columns.mul_(column_stride).add_(rows, alpha=row_stride)
        return Matches(rows, cells)


def _run(
    ordered: Int64[Tensor, " K"], first_of_target: Int64[Tensor, " n"], keys: slice
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """Start and length of the run of each row's target among the sorted keys, for the range `keys`
    only; [n] each.
    """
    first = torch.searchsorted(ordered, first_of_target + keys.start)
    stop = torch.searchsorted(ordered, first_of_target + keys.stop)
    return first, stop - first


def _corner(block: Block) -> tuple[int, int]:
    return block.rows.start, block.keys.start
