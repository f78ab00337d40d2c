"""Scores of blocks of cells, one block after the other in the same memory.

Shapes: N queries, K keys, d width; n rows and m keys a block.

Three rooms are as large as the largest block, and serve every block:

- `scores`, in the type of sums: the scores of a block, n x m;
- `mirrored`, if a block has a mirror, in the type of sums: the scores of the mirror, as it lies, n x m too;
- `products`, if products have a narrower type than sums: products before they are widened into the other two,
  and gradients after they are narrowed. Otherwise it is `scores`, where products are made in place.

`sides` writes all three anew. The scores that it returns, one room each, are then the caller's to overwrite, until it
asks for the next block. `narrowed` writes `products` alone, which holds nothing that is still needed by then.
"""

import math
from collections.abc import Sequence

import torch
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
