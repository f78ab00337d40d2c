"""In-batch memory, read in training: the [queries, keys] scores never exist whole.

Shapes: N queries, K keys, d width; n rows and m keys a block, h hits (cells that hold their row's target).
Scores are base-2 logarithms inside, because exp2 takes half the time of exp.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stages.memory.visible import Block, Visible, visible_blocks

ROWS_AT_ONCE = {"cpu": 256, "cuda": 2048}
KEYS_AT_ONCE = {"cpu": 2048, "cuda": 8192}
"""Of a block; one is held: 4 bytes a cell, and up to 40 bytes each of its target cells."""


def in_batch_masses(
    queries: Tensor, keys: Tensor, targets: Tensor, values: Tensor, visible: Visible, scale: float
) -> tuple[Tensor, Tensor]:
    """What each query's visible keys give to its target, and in all: log Σ exp(scale q·k) over the cells.

    Works through blocks of cells, and again for the gradients, so that memory is one block whatever N and K.
    Blocks without a visible cell cost nothing. Matrix products are made in the type of autocast, where it is
    on; all else in float32, or in float64 if the queries are.

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
        queries, keys, targets, values, visible, scale, _product_dtype(queries)
    )
    return masses


def _product_dtype(queries: Tensor) -> torch.dtype:
    device = queries.device.type
    if torch.is_autocast_enabled(device) and queries.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return queries.dtype


class _Hits(NamedTuple):
    """The cells of a block that hold their row's target, visible or not: row and place in the flat block; [h]."""

    rows: Tensor
    cells: Tensor


class _Tokens:
    """The tokens of queries and keys, ready to find the cells where they are the same."""

    def __init__(self, targets: Tensor, values: Tensor) -> None:
        self.factor = len(values)
        self.targets = targets * self.factor
        places = torch.arange(self.factor, device=values.device)
        self.ordered, self.order = (values * self.factor + places).sort()

    def hits(self, block: Block) -> _Hits:
        """In the order of rows. Keys stand sorted by token, then place: those of a row's target are a run."""
        wanted = self.targets[block.rows]
        first = torch.searchsorted(self.ordered, wanted + block.keys.start)
        counts = torch.searchsorted(self.ordered, wanted + block.keys.stop) - first
        rows = torch.repeat_interleave(counts)
        before = counts.cumsum(0) - counts
        places = torch.arange(len(rows), device=rows.device) + (first - before).index_select(0, rows)
        width = block.keys.stop - block.keys.start
        return _Hits(rows, (rows * width).add_(self.order.index_select(0, places)).sub_(block.keys.start))


class _Products:
    """Scores of blocks, and products with them; in room that all blocks share."""

    def __init__(self, queries: Tensor, keys: Tensor, visible: Visible, scale: float, dtype: torch.dtype) -> None:
        self.sums = torch.float64 if queries.dtype == torch.float64 else torch.float32
        self.queries = (queries.to(self.sums) * (scale * math.log2(math.e))).to(dtype)
        self.keys = keys.to(dtype)
        self.visible = visible.to(queries.device)
        self.blocks = visible_blocks(visible, len(keys), *_block_size(queries.device))
        cells = max(((b.rows.stop - b.rows.start) * (b.keys.stop - b.keys.start) for b in self.blocks), default=0)
        self.room = queries.new_empty(cells, dtype=self.sums)
        self.narrow_room = self.room if dtype == self.sums else queries.new_empty(cells, dtype=dtype)

    def scores(self, block: Block) -> Tensor:
        """[n, m], base-2 logarithms; -inf where not visible. Overwritten by the next block's."""
        queries, keys = self.queries[block.rows], self.keys[block.keys]
        shape = len(queries), len(keys)
        narrow = torch.mm(queries, keys.T, out=_shaped(self.narrow_room, shape))
        scores = narrow if narrow.dtype == self.sums else _shaped(self.room, shape).copy_(narrow)
        if not block.whole:
            scores.add_(self.visible[block.rows].mask(block.keys))
        return scores

    def narrowed(self, weights: Tensor) -> Tensor:
        """Weights [n, m] of a block's cells in the type of products."""
        if weights.dtype == self.narrow_room.dtype:
            return weights
        return _shaped(self.narrow_room, weights.shape).copy_(weights)


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
        keys: Tensor,
        targets: Tensor,
        values: Tensor,
        visible: Visible,
        scale: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        products, tokens = _Products(queries, keys, visible, scale, dtype), _Tokens(targets, values)
        target, total = (_LogSums(queries, len(queries), products.sums) for _ in range(2))
        for block in products.blocks:
            scores, hits = products.scores(block), tokens.hits(block)
            target.add_hits(block, hits.rows, scores.view(-1).index_select(0, hits.cells))
            total.add_cells(block, scores)
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
        grad_keys = torch.zeros_like(keys, dtype=products.sums) if needs_keys else None
        for block in products.blocks:
            parts = of_target.of_rows(block.rows), of_total.of_rows(block.rows)
            weights = products.narrowed(_weights(products.scores(block), tokens.hits(block), *parts))
            if grad_queries is not None:
                _add_product(grad_queries[block.rows], weights, products.keys[block.keys])
            if grad_keys is not None:
                _add_product(grad_keys[block.keys], weights.T, products.queries[block.rows])
        scale = ctx.settings[1]
        return (
            None if grad_queries is None else grad_queries.mul_(scale).to(queries.dtype),
            None if grad_keys is None else grad_keys.mul_(math.log(2)).to(keys.dtype),
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


def _weights(scores: Tensor, hits: _Hits, target: _Gradient, total: _Gradient) -> Tensor:
    """Gradient of a block's natural scores, [n, m], in place of the scores."""
    logarithms, worth = (part.index_select(0, hits.rows) for part in target)
    found = scores.view(-1).index_select(0, hits.cells).sub_(logarithms).exp2_().mul_(worth)
    weights = scores.sub_(total.logarithms[:, None]).exp2_().mul_(total.worth[:, None])
    weights.view(-1).index_add_(0, hits.cells, found)
    return weights


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left @ right; the sum in the type of into, the product in theirs."""
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        into.add_(left @ right)


def _block_size(device: torch.device) -> tuple[int, int]:
    kind = device.type if device.type in ROWS_AT_ONCE else "cpu"
    return ROWS_AT_ONCE[kind], KEYS_AT_ONCE[kind]


def _shaped(room: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The beginning of a room as a matrix."""
    return room[: math.prod(shape)].view(shape)


def _finite(logarithms: Tensor) -> Tensor:
    """Those of empty sums become 0: what is counted from them is nothing."""
    return logarithms.nan_to_num(neginf=0.0)
