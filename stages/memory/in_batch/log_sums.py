"""Log-sums of in-batch memory in training, without the whole [queries, keys] matrix of scores.

`fused` has kernels for a GPU with Triton. This module is for all other devices, and for float64.
`visible` says which keys each query reads, and `blocks` cuts them into blocks. `block_scores`
computes the scores of a block, and finds the keys of the target in it. The forward pass here adds
up the cells of each block. The backward pass computes the scores again, and turns them into
gradients.

Shapes: N queries, K keys, d width; n rows and m keys a block, h matches (cells that hold their
row's target). Intermediate scores and log-sums use base 2; the results and their gradients are
natural.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from stages.machine import runs_triton
from stages.memory.in_batch.block_scores import BlockScores, Matches, TargetMatches
from stages.memory.in_batch.blocks import Block, fewest_products
from stages.memory.in_batch.visible import Visible


def in_batch_log_sums(
    queries: Float[Tensor, "N d"],
    keys: Float[Tensor, "K d"],
    targets: Int64[Tensor, " N"],
    values: Int64[Tensor, " K"],
    visible: Visible,
    scale: float,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Log-sums of each query's visible keys: log Σ exp(scale q·k) over the cells of its target, and
    over all cells.

    Both passes work block by block, so memory is that of one block, whatever N and K are. A cell
    takes up to 12 bytes (6 without mirrors in float32), and a target's cell 40 more. Blocks without
    a visible cell cost nothing. If keys and queries are the same tensor, one product serves both
    positions. Products have the dtype of autocast, if it is on. All else is in float32, or in
    float64 if the queries are.

    Besides the arguments, the forward pass keeps the blocks and what `TargetMatches` holds. It also
    keeps 32 bytes a query if `visible` was on another device.

    A score that is not visible may overflow or be NaN. But gradients multiply whole blocks of
    queries and keys: a query or key that is not finite spoils the gradients of its whole block.

    Args:
        queries: [N, d].
        keys: [K, d]; detach them if they are constants.
        targets: the token that each query predicts, int64 [N].
        values: the token that followed each key, int64 [K].
        visible: the keys that each of the N queries reads.
        scale: factor of the inner products; 1/(τ sqrt(d)) for scaled-dot.
    Returns: log-sums over the visible cells whose value is the target, and over all visible cells,
        [N] each, natural log; -inf if there is no such cell. Differentiable once in queries and
        keys.
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5.

    Three keys of scores 0, log 2 and log 3, all visible; the first two hold the target:

    >>> keys, one = torch.tensor([[0.0], [math.log(2)], [math.log(3)]]), torch.ones(1, 1)
    >>> everything = Visible(*(torch.tensor([n]) for n in (0, 3, 0, 0)))
    >>> sums = in_batch_log_sums(one, keys, torch.tensor([7]), torch.tensor([7, 7, 5]), everything, scale=1.0)
    >>> torch.stack(sums).exp().flatten()  # 1 + 2, and 1 + 2 + 3
    tensor([3.0000, 6.0000])
    """
    dtype = _product_dtype(queries)
    if dtype != torch.float64 and runs_triton(queries.device.type):
        from stages.memory.in_batch.fused import fused_log_sums

        return fused_log_sums(queries, keys, targets, values, visible, scale, dtype)
    return _InBatchLogSums.apply(  # type: ignore[no-untyped-call]
        queries, None if keys is queries else keys, targets, values, visible, scale, dtype
    )


def _product_dtype(queries: Tensor) -> torch.dtype:
    device = queries.device.type
    if torch.is_autocast_enabled(device) and queries.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return queries.dtype


class _LogSums:
    """Running log2 Σ 2^score of each row, as Σ 2^(score - peak) and the peak, [N] each."""

    def __init__(self, like: Tensor, rows: int, dtype: torch.dtype) -> None:
        self.sums = like.new_zeros(rows, dtype=dtype)
        self.peaks = like.new_full((rows,), -torch.inf, dtype=dtype)

    def add_matches(self, block: Block, rows: Tensor, scores: Tensor) -> None:
        """Add single cells [h] of some rows of the block."""
        peaks = self.peaks[block.rows]
        sums = self.sums[block.rows]
        new_peaks = peaks.scatter_reduce(0, rows, scores, "amax")
        shift = _finite(new_peaks)
        # Earlier sums are relative to the old peak, so they are rescaled to the new one.
        sums.mul_((peaks - shift).exp2_())
        sums.index_add_(0, rows, (scores - shift.index_select(0, rows)).exp2_())
        peaks.copy_(new_peaks)

    def add_cells(self, block: Block, scores: Tensor) -> None:
        """Add all cells [n, m] of the block; overwrites `scores`."""
        peaks = self.peaks[block.rows]
        sums = self.sums[block.rows]
        new_peaks = torch.maximum(peaks, scores.amax(1))
        shift = _finite(new_peaks)
        sums.mul_((peaks - shift).exp2_())
        sums.add_(scores.sub_(shift[:, None]).exp2_().sum(1))
        peaks.copy_(new_peaks)

    def logarithms(self) -> Tensor:
        """Natural log-sums; -inf for rows without cells."""
        return (self.sums.log2() + _finite(self.peaks)) * math.log(2)


class _InBatchLogSums(torch.autograd.Function):
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
        blocks = fewest_products(visible, len(values), keys is None, queries.device.type)
        target_matches = TargetMatches(targets, values, blocks)
        settings = (visible.to(queries.device), blocks, scale, dtype)
        block_scores = BlockScores(queries, keys, *settings)

        target = _LogSums(queries, len(queries), block_scores.sums)
        total = _LogSums(queries, len(queries), block_scores.sums)
        for block in blocks:
            for side, scores in block_scores.sides(block):
                matches = target_matches.matches(side, scores.stride())
                match_scores = _flat(scores).index_select(0, matches.cells)
                target.add_matches(side, matches.rows, match_scores)
                # Last, because it overwrites the scores.
                total.add_cells(side, scores)

        target_log_sums = target.logarithms()
        total_log_sums = total.logarithms()
        ctx.save_for_backward(queries, keys, target_log_sums, total_log_sums)
        ctx.target_matches = target_matches
        ctx.settings = settings
        return target_log_sums, total_log_sums

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_target: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, target_log_sums, total_log_sums = ctx.saved_tensors
        _, blocks, scale, _ = ctx.settings
        # Scores are computed again: to keep them would take the whole [N, K] matrix.
        block_scores = BlockScores(queries, keys, *ctx.settings)
        target = _Gradient.of(target_log_sums, grad_target)
        total = _Gradient.of(total_log_sums, grad_total)

        needs_queries, needs_keys = ctx.needs_input_grad[:2]
        grad_queries: Tensor | None = None
        if needs_queries:
            grad_queries = torch.zeros_like(queries, dtype=block_scores.sums)
        grad_keys: Tensor | None = None
        if keys is None:
            # Queries are the keys: both roles add to one gradient.
            grad_keys = grad_queries
        elif needs_keys:
            grad_keys = torch.zeros_like(keys, dtype=block_scores.sums)

        for block in blocks:
            score_gradient = _product_gradient(
                block_scores, ctx.target_matches, block, target, total
            )
            gradient = block_scores.narrowed(score_gradient)
            if grad_queries is not None:
                _add_product(grad_queries[block.rows], gradient, block_scores.keys[block.keys])
            if grad_keys is not None:
                _add_product(grad_keys[block.keys], gradient.T, block_scores.queries[block.rows])

        # The scale of the scores is applied once, to the sums.
        if grad_queries is not None:
            grad_queries = grad_queries.mul_(scale).to(queries.dtype)
        no_gradients = (None,) * 5
        # Where the queries are the keys, their gradient is that of both.
        if keys is None:
            return grad_queries, None, *no_gradients
        if grad_keys is not None:
            grad_keys = grad_keys.mul_(scale).to(keys.dtype)
        return grad_queries, grad_keys, *no_gradients


class _Gradient(NamedTuple):
    """Log-sums [N] in base 2, and the loss's gradient with respect to them; both finite, and 0 for
    an empty sum.
    """

    logarithms: Tensor
    upstream: Tensor

    @staticmethod
    def of(log_sums: Tensor, gradient: Tensor) -> "_Gradient":
        logarithms = _finite(log_sums * math.log2(math.e))
        return _Gradient(logarithms, gradient.masked_fill(log_sums.isneginf(), 0))

    def of_rows(self, rows: slice) -> "_Gradient":
        return _Gradient(self.logarithms[rows], self.upstream[rows])


def _product_gradient(
    block_scores: BlockScores,
    target_matches: TargetMatches,
    block: Block,
    target: _Gradient,
    total: _Gradient,
) -> Tensor:
    """Gradient with respect to a block's natural scores, [n, m], in the buffer of its scores.

    A block and its mirror are two sides of one product, as q_i·k_j is k_j·q_i where the queries are
    the keys. So the gradient of the mirror, [m, n], is added transposed.
    """
    gradients: list[Tensor] = []
    for side, scores in block_scores.sides(block):
        # The scores of a mirror are a transposed view: strides turn cells into memory offsets.
        matches = target_matches.matches(side, scores.stride())
        target_of_rows = target.of_rows(side.rows)
        total_of_rows = total.of_rows(side.rows)
        gradients.append(_score_gradient(scores, matches, target_of_rows, total_of_rows))

    gradient, *mirror_gradients = gradients
    for mirror_gradient in mirror_gradients:
        gradient.add_(mirror_gradient.T)
    return gradient


def _score_gradient(
    scores: Tensor, matches: Matches, target: _Gradient, total: _Gradient
) -> Tensor:
    """Gradient with respect to the natural scores of one side of a block, [n, m]; overwrites
    `scores`.
    """
    # The gradient of a log-sum is each term's share of the sum. Those of matches come first,
    # because the shares of all cells overwrite the scores.
    logarithms = target.logarithms.index_select(0, matches.rows)
    upstream = target.upstream.index_select(0, matches.rows)
    match_scores = _flat(scores).index_select(0, matches.cells)
    match_gradient = match_scores.sub_(logarithms).exp2_().mul_(upstream)

    gradient = scores.sub_(total.logarithms[:, None]).exp2_().mul_(total.upstream[:, None])
    _flat(gradient).index_add_(0, matches.cells, match_gradient)
    return gradient


def _add_product(total: Tensor, factor: Tensor, other_factor: Tensor) -> None:
    """Add a product to `total`: the sum has the dtype of `total`, the product that of its factors."""
    if total.dtype == factor.dtype:
        total.addmm_(factor, other_factor)
    else:
        total.add_(factor @ other_factor)


def _flat(scores: Tensor) -> Tensor:
    """Cells of a matrix, transposed or not, in the order of memory."""
    return scores.as_strided((scores.numel(),), (1,))


def _finite(logarithms: Tensor) -> Tensor:
    """Logarithms, with 0 instead of -inf for empty sums, which have no terms."""
    return logarithms.nan_to_num(neginf=0.0)


CELLS_AT_ONCE = 1 << 22
"""Scores that are computed at a time in the search for the best keys."""


def best_log_sums(
    queries: Float[Tensor, "N d"],
    keys: Float[Tensor, "K d"],
    targets: Int64[Tensor, " N"],
    values: Int64[Tensor, " K"],
    visible: Visible,
    scale: float,
    k: int,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Log-sums over each query's k best visible keys: over those of its target, and over all.

    The choice of keys has no gradient; the scores of the chosen keys have one. With k ≥ K the sums
    are those of `in_batch_log_sums`. Ties may be broken in any way.

    Args: those of `in_batch_log_sums`; k: most keys that a query reads.
    Returns: [N] each, natural log; -inf where there is no such key.

    The query sees three keys and reads the two best. One of these holds its target.

    >>> import math
    >>> everything = Visible(*(torch.tensor([n]) for n in (0, 3, 0, 0)))
    >>> target, total = best_log_sums(
    ...     torch.ones(1, 1), torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([7]), torch.tensor([7, 7, 5]),
    ...     everything, scale=1.0, k=2)
    >>> target, (total - math.log(math.e + math.e**2)).abs() < 1e-6
    (tensor([1.]), tensor([True]))
    """
    chosen, is_visible = _choose(queries.detach(), keys.detach(), visible, min(k, len(keys)))
    # The scores of the chosen keys are computed again, with a gradient.
    chosen_keys = keys.index_select(0, chosen.flatten()).unflatten(0, chosen.shape)
    scores = torch.einsum("nd,nkd->nk", queries, chosen_keys) * scale
    if scores.dtype != torch.float64:
        scores = scores.float()
    is_target = is_visible & (values[chosen] == targets[:, None])
    return _log_sum(scores, is_target), _log_sum(scores, is_visible)


@torch.no_grad()
def _choose(queries: Tensor, keys: Tensor, visible: Visible, k: int) -> tuple[Tensor, Tensor]:
    """The k best keys of each query, int64 [N, k], and whether it sees each of them, bool [N, k]."""
    rows_at_once = max(1, CELLS_AT_ONCE // max(1, len(keys)))
    every_key = slice(0, len(keys))
    scores: list[Tensor] = []
    indices: list[Tensor] = []
    for start in range(0, len(queries), rows_at_once):
        rows = slice(start, min(start + rows_at_once, len(queries)))
        hidden = visible[rows].hides(every_key)
        row_scores = (queries[rows] @ keys.T).masked_fill_(hidden, -torch.inf)
        best = row_scores.topk(k, dim=1)
        scores.append(best.values)
        indices.append(best.indices)
    return torch.cat(indices), torch.cat(scores) > -torch.inf


def _log_sum(scores: Tensor, counted: Tensor) -> Tensor:
    """log Σ exp of the counted scores of each row; -inf, without a gradient, if there are none."""
    has_terms = counted.any(1)
    # A row of only -inf would have NaN gradients: such rows are filled with 0, and masked
    # afterwards.
    masked = scores.masked_fill(~counted, -torch.inf)
    filled = torch.where(has_terms[:, None], masked, torch.zeros_like(masked))
    return filled.logsumexp(1).masked_fill(~has_terms, -torch.inf)
