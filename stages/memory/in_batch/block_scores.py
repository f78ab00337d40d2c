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

from stages.memory.in_batch.blocks import ScoreBlock
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
        blocks: Sequence[ScoreBlock],
        scale: float,
        dtype: torch.dtype,
    ) -> None:
        """Allocate the buffers of all blocks.

        Args:
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
        # The scale goes into [N, d], which costs less than scaling [n, m] of each block. It is
        # multiplied before products are narrowed, so that it costs no digits.
        base_2_scale = scale * math.log2(math.e)
        self._scaled = (queries.to(self.sums) * base_2_scale).to(dtype)
        self._visible = visible

        max_cells = max((block.cells for block in blocks), default=0)
        mirrored_cells = max_cells if any(block.mirror for block in blocks) else 0
        self._scores = queries.new_empty(max_cells, dtype=self.sums)
        self._mirrored = queries.new_empty(mirrored_cells, dtype=self.sums)
        self._products = self._scores
        if dtype != self.sums:
            self._products = queries.new_empty(max_cells, dtype=dtype)

    def sides(self, block: ScoreBlock) -> list[tuple[ScoreBlock, Tensor]]:
        """The block and its mirror, if it has one, each with its scores [n, m]; -inf where not
        visible.

        The scores of a mirror are a transposed view.
        """
        queries = self._scaled[block.rows]  # [n, d]
        keys = self.keys[block.keys]  # [m, d]
        products = _matrix(self._products, len(queries), len(keys))
        torch.mm(queries, keys.T, out=products)

        # The mirror is copied before the scores are masked in place.
        mirror_scores = None
        if block.mirror is not None:
            mirror_scores = _copied(products, self._mirrored).T
        in_place = self._products is self._scores
        scores = products if in_place else _copied(products, self._scores)

        sides = [(block, self._masked(block, scores))]
        if block.mirror is not None and mirror_scores is not None:
            sides.append((block.mirror, self._masked(block.mirror, mirror_scores)))
        return sides

    def narrowed(self, gradient: Tensor) -> Tensor:
        """The gradient [n, m] of a block's scores, in the dtype of products."""
        return gradient if self._products is self._scores else _copied(gradient, self._products)

    def _masked(self, block: ScoreBlock, scores: Tensor) -> Tensor:
        """Write -inf into the cells that are not visible."""
        if block.whole:
            return scores
        hidden = self._visible[block.rows].hides(block.keys)
        return scores.masked_fill_(hidden, -torch.inf)


def _copied(matrix: Tensor, buffer: Tensor) -> Tensor:
    """Copy a matrix into the beginning of a buffer, in the dtype of the buffer."""
    return _matrix(buffer, *matrix.shape).copy_(matrix)


def _matrix(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """The beginning of a buffer as a matrix."""
    return buffer[: rows * columns].view(rows, columns)


class TargetCells(NamedTuple):
    """The cells in a block that hold their row's target, visible or not, int64 [h] each."""

    rows: Tensor
    offsets: Tensor
    """Memory offset of each cell in the block's scores, since a mirror's are transposed."""


class _Runs(NamedTuple):
    """Runs of matching keys among the sorted keys: first key and length for each row, int64 [n],
    and their total.
    """

    first: Tensor
    counts: Tensor
    total: int


class TargetMatches:
    """Finds the target cells of blocks.

    Keys are sorted by token, then index. So the keys of a token within a block are consecutive.
    Runs are found for all blocks together. So the host waits for the device once, for the number of
    matches of each block. This takes 8 bytes for each key, and 16 for each row of a block: 1/128
    byte per cell if blocks are 2,048 keys wide.
    """

    def __init__(
        self,
        targets: Int64[Tensor, " N"],
        values: Int64[Tensor, " K"],
        blocks: Sequence[ScoreBlock],
    ) -> None:
        """Sort the keys, and find the runs of all blocks.

        Args:
            targets: the token that each query predicts, int64 [N].
            values: the token that followed each key, int64 [K].
            blocks: all blocks that `matches` will get; their mirrors are included.
        """
        # A key's token and index as one number: sorted by token, then by index. A target's keys
        # begin at the number that it has with index 0.
        num_keys = len(values)
        indices = torch.arange(num_keys, device=values.device)
        ordered, self._order = (values * num_keys + indices).sort()
        first_of_target = targets * num_keys

        sides: list[ScoreBlock] = []
        for block in blocks:
            sides += block.sides
        firsts = []
        counts = []
        for side in sides:
            first, count = _run(ordered, first_of_target[side.rows], side.keys)
            firsts.append(first)
            counts.append(count)

        # One transfer to the host for all blocks.
        totals = torch.stack([count.sum() for count in counts]).tolist() if counts else []
        self._runs = dict[tuple[int, int], _Runs]()
        for side, *run in zip(sides, firsts, counts, totals, strict=True):
            self._runs[_corner(side)] = _Runs(*run)

    def matches(self, block: ScoreBlock, strides: tuple[int, ...]) -> TargetCells:
        """Matches of a block in order of row; `strides` are those of its matrix of scores."""
        first, counts, total = self._runs[_corner(block)]
        # `output_size` spares the wait for the device.
        rows = torch.repeat_interleave(counts, output_size=total)  # [h]

        # The matches of a row are consecutive, from the start of its run among the sorted keys.
        matches_before = counts.cumsum(0) - counts
        rank_of_row = first - matches_before
        ranks = torch.arange(total, device=rows.device) + rank_of_row.index_select(0, rows)
        keys = self._order.index_select(0, ranks)
        columns = keys.sub_(block.keys.start)

        row_stride, column_stride = strides
        offsets = columns.mul_(column_stride).add_(rows, alpha=row_stride)
        return TargetCells(rows, offsets)


def _run(
    ordered: Int64[Tensor, " K"], first_of_target: Int64[Tensor, " n"], keys: slice
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """Start and length of the run of each row's target among the sorted keys, for the range `keys`
    only; [n] each.
    """
    first = torch.searchsorted(ordered, first_of_target + keys.start)
    stop = torch.searchsorted(ordered, first_of_target + keys.stop)
    return first, stop - first


def _corner(block: ScoreBlock) -> tuple[int, int]:
    """Identity of a block: its first row and its first key."""
    return block.rows.start, block.keys.start
