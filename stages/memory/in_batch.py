"""In-batch memory, read in training: the [queries, keys] scores never exist whole.

Shapes: N queries, K keys, d width; n rows and m keys a block, h hits (cells that hold their row's target).
Scores are base-2 logarithms inside, because exp2 takes half the time of exp.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stages.memory.visible import Block, Visible, mirrored_blocks, visible_blocks

ROWS_AT_ONCE = {"cpu": 256, "cuda": 2048}
KEYS_AT_ONCE = {"cpu": 2048, "cuda": 8192}
SQUARE_AT_ONCE = {"cpu": 1024, "cuda": 4096}
"""Of a block; one is held: up to 12 bytes a cell, and 40 bytes each of its target cells. Squares: of mirrored ones."""


def in_batch_masses(
    queries: Tensor, keys: Tensor, targets: Tensor, values: Tensor, visible: Visible, scale: float
) -> tuple[Tensor, Tensor]:
    """What each query's visible keys give to its target, and in all: log Σ exp(scale q·k) over the cells.

    Works through blocks of cells, and again for the gradients, so that memory is one block whatever N and K.
    Blocks without a visible cell cost nothing. If the keys are the queries, the same tensor, a product serves
    both positions. Products are made in the type of autocast, where it is on; all else in float32, or in
    float64 if the queries are.

    Args:
        queries: [N, d].
        keys: [K, d]; detached where they are to be constants.
        targets: the token that each query predicts, int64 [N].
        values: the token that followed each key, int64 [K].
        visible: of N queries.
        scale: of the inner products; 1/(τ sqrt(d)) for scaled-dot.
    Returns: of the visible cells whose value is the target, and of all visible cells, [N] each, natural log;
        -inf where there is no such cell. Differentiable in queries and keys, once.
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5.
    """
    masses: tuple[Tensor, Tensor] = _InBatchMasses.apply(  # type: ignore[no-untyped-call]
        queries, None if keys is queries else keys, targets, values, visible, scale, _product_dtype(queries)
    )
    return masses


def _product_dtype(queries: Tensor) -> torch.dtype:
    device = queries.device.type
    if torch.is_autocast_enabled(device) and queries.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return queries.dtype


class _Hits(NamedTuple):
    """The cells of a block that hold their row's target, visible or not: row, and place in memory; [h]."""

    rows: Tensor
    cells: Tensor


class _Tokens:
    """The tokens of queries and keys, ready to find the cells where they are the same."""

    def __init__(self, targets: Tensor, values: Tensor) -> None:
        self.factor = len(values)
        self.targets = targets * self.factor
        places = torch.arange(self.factor, device=values.device)
        self.ordered, self.order = (values * self.factor + places).sort()

    def hits(self, block: Block, scores: Tensor) -> _Hits:
        """In the order of rows. Keys stand sorted by token, then place: those of a row's target are a run."""
        wanted = self.targets[block.rows]
        first = torch.searchsorted(self.ordered, wanted + block.keys.start)
        counts = torch.searchsorted(self.ordered, wanted + block.keys.stop) - first
        rows = torch.repeat_interleave(counts)
        before = counts.cumsum(0) - counts
        places = torch.arange(len(rows), device=rows.device) + (first - before).index_select(0, rows)
        columns = self.order.index_select(0, places).sub_(block.keys.start)
        down, across = scores.stride()
        return _Hits(rows, columns.mul_(across).add_(rows, alpha=down))


class _Products:
    """Scores of blocks, and products with them; in room that all blocks share. No keys: they are the queries."""

    def __init__(
        self, queries: Tensor, keys: Tensor | None, visible: Visible, scale: float, dtype: torch.dtype
    ) -> None:
        self.sums = torch.float64 if queries.dtype == torch.float64 else torch.float32
        self.queries = (queries.to(self.sums) * (scale * math.log2(math.e))).to(dtype)
        self.unscaled = queries.to(dtype)
        self.keys = self.unscaled if keys is None else keys.to(dtype)
        self.visible = visible.to(queries.device)
        self.blocks = _blocks(visible, len(self.keys), keys is None, queries.device.type)
        cells = max((block.cells for block in self.blocks), default=0)
        self.room = queries.new_empty(cells, dtype=self.sums)
        mirrored = any(block.mirror for block in self.blocks)
        self.mirror_room = torch.empty_like(self.room) if mirrored else self.room
        own = dtype == self.sums and not mirrored
        self.product_room = self.room if own else queries.new_empty(cells, dtype=dtype)

    def sides(self, block: Block) -> Iterator[tuple[Block, Tensor]]:
        """The block and its mirror, if it has one; of each the scores [n, m], -inf where not visible.

        Base-2 logarithms. They are overwritten when the next block's are made.
        """
        queries, keys = self.queries[block.rows], self.keys[block.keys]
        products = torch.mm(queries, keys.T, out=_shaped(self.product_room, (len(queries), len(keys))))
        yield block, self._masked(block, self._copied(products, self.room))
        if block.mirror is not None:
            yield block.mirror, self._masked(block.mirror, self._copied(products, self.mirror_room).T)

    def narrowed(self, weights: Tensor) -> Tensor:
        """Weights [n, m] of a block's cells in the type of products."""
        return weights if weights.dtype == self.keys.dtype else self._copied(weights, self.product_room)

    def _copied(self, matrix: Tensor, room: Tensor) -> Tensor:
        return matrix if self.product_room is self.room else _shaped(room, matrix.shape).copy_(matrix)

    def _masked(self, block: Block, scores: Tensor) -> Tensor:
        return scores if block.whole else scores.add_(self.visible[block.rows].mask(block.keys))


class _LogSums:
    """Running log2 Σ 2^score of rows: Σ 2^(score - peak), and the peak; [N] each."""

    def __init__(self, like: Tensor, rows: int, dtype: torch.dtype) -> None:
        self.sums = like.new_zeros(rows, dtype=dtype)
        self.peaks = like.new_full((rows,), -torch.inf, dtype=dtype)

    def add_hits(self, block: Block, rows: Tensor, scores: Tensor) -> None:
        """Add single cells [h] of some rows of the block."""
        peaks, sums = self.peaks[block.rows], self.sums[block.rows]
        best = peaks.scatter_reduce(0, rows, scores, "amax")
        behind = _finite(best)
        sums.mul_((peaks - behind).exp2_()).index_add_(0, rows, (scores - behind.index_select(0, rows)).exp2_())
        peaks.copy_(best)

    def add_cells(self, block: Block, scores: Tensor) -> None:
        """Add all cells [n, m] of the block, which are overwritten."""
        peaks, sums = self.peaks[block.rows], self.sums[block.rows]
        best = torch.maximum(peaks, scores.amax(1))
        behind = _finite(best)
        sums.mul_((peaks - behind).exp2_()).add_(scores.sub_(behind[:, None]).exp2_().sum(1))
        peaks.copy_(best)

    def logarithms(self) -> Tensor:
        """Natural; -inf for rows without cells."""
        return (self.sums.log2() + _finite(self.peaks)) * math.log(2)


class _InBatchMasses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor | None,
        targets: Tensor,
        values: Tensor,
        visible: Visible,
        scale: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        products, tokens = _Products(queries, keys, visible, scale, dtype), _Tokens(targets, values)
        target, total = (_LogSums(queries, len(queries), products.sums) for _ in range(2))
        for block in products.blocks:
            for side, scores in products.sides(block):
                hits = tokens.hits(side, scores)
                target.add_hits(side, hits.rows, _flat(scores).index_select(0, hits.cells))
                total.add_cells(side, scores)
        masses = target.logarithms(), total.logarithms()
        ctx.save_for_backward(queries, keys, targets, values, *masses)
        ctx.settings = visible, scale, dtype
        return masses

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_target: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, targets, values, target, total = ctx.saved_tensors
        products, tokens = _Products(queries, keys, *ctx.settings), _Tokens(targets, values)
        of_target, of_total = _Gradient.of(target, grad_target), _Gradient.of(total, grad_total)
        needs_queries, needs_keys = ctx.needs_input_grad[:2]
        grad_queries = torch.zeros_like(queries, dtype=products.sums) if needs_queries else None
        grad_keys = (
            grad_queries if keys is None else torch.zeros_like(keys, dtype=products.sums) if needs_keys else None
        )
        for block in products.blocks:
            weights = products.narrowed(_weights_of_sides(products, tokens, block, of_target, of_total))
            if grad_queries is not None:
                _add_product(grad_queries[block.rows], weights, products.keys[block.keys])
            if grad_keys is not None:
                _add_product(grad_keys[block.keys], weights.T, products.unscaled[block.rows])
        scale = ctx.settings[1]
        return (
            None if grad_queries is None else grad_queries.mul_(scale).to(queries.dtype),
            None if keys is None or grad_keys is None else grad_keys.mul_(scale).to(keys.dtype),
            *(None,) * 5,
        )


class _Gradient(NamedTuple):
    """Of logarithms of sums, [N]: base 2, and what they are worth to the loss. Finite and 0 where the sum is empty."""

    logarithms: Tensor
    worth: Tensor

    @staticmethod
    def of(masses: Tensor, gradient: Tensor) -> "_Gradient":
        return _Gradient(_finite(masses * math.log2(math.e)), gradient.masked_fill(masses.isneginf(), 0))

    def of_rows(self, rows: slice) -> "_Gradient":
        return _Gradient(self.logarithms[rows], self.worth[rows])


def _weights_of_sides(
    products: _Products, tokens: _Tokens, block: Block, target: "_Gradient", total: "_Gradient"
) -> Tensor:
    """Gradient of a block's products, [n, m]."""
    first, *mirrored = (
        _weights(scores, tokens.hits(side, scores), target.of_rows(side.rows), total.of_rows(side.rows))
        for side, scores in products.sides(block)
    )
    for weights in mirrored:
        first.add_(weights.T)
    return first


def _weights(scores: Tensor, hits: _Hits, target: _Gradient, total: _Gradient) -> Tensor:
    """Gradient of a block's natural scores, [n, m], in place of the scores."""
    logarithms, worth = (part.index_select(0, hits.rows) for part in target)
    found = _flat(scores).index_select(0, hits.cells).sub_(logarithms).exp2_().mul_(worth)
    weights = scores.sub_(total.logarithms[:, None]).exp2_().mul_(total.worth[:, None])
    _flat(weights).index_add_(0, hits.cells, found)
    return weights


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left @ right; the sum in the type of into, the product in theirs."""
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        into.add_(left @ right)


def _blocks(visible: Visible, keys: int, mirrored: bool, device: str) -> list[Block]:
    """The blocks with the fewest products; `mirrored`: whether the keys are the queries."""
    kind = device if device in ROWS_AT_ONCE else "cpu"
    ways = [visible_blocks(visible, keys, ROWS_AT_ONCE[kind], KEYS_AT_ONCE[kind])]
    if mirrored:
        ways.append(mirrored_blocks(visible, SQUARE_AT_ONCE[kind]))
    return min(ways, key=lambda blocks: sum(block.cells for block in blocks))


def _shaped(room: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The beginning of a room as a matrix."""
    return room[: math.prod(shape)].view(shape)


def _flat(scores: Tensor) -> Tensor:
    """The cells of a matrix, or of a transposed one, in the order of memory."""
    return scores.as_strided((scores.numel(),), (1,))


def _finite(logarithms: Tensor) -> Tensor:
    """Those of empty sums become 0: what is counted from them is nothing."""
    return logarithms.nan_to_num(neginf=0.0)
