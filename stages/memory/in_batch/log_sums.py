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
from stages.memory.in_batch.block_scores import BlockScores, TargetCells, TargetMatches
from stages.memory.in_batch.blocks import ScoreBlock, fewest_products
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

    >>> keys = torch.tensor([[0.0], [math.log(2)], [math.log(3)]])
    >>> targets, values = torch.tensor([7]), torch.tensor([7, 7, 5])
    >>> everything = Visible(*(torch.tensor([n]) for n in (0, 3, 0, 0)))
    >>> sums = in_batch_log_sums(torch.ones(1, 1), keys, targets, values, everything, scale=1.0)
    >>> torch.cat(sums).exp()  # 1 + 2, and 1 + 2 + 3
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
    """The dtype of inner products: that of autocast, if it is on."""
    device = queries.device.type
    if torch.is_autocast_enabled(device) and queries.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return queries.dtype


class _LogSums:
    """Running log2 Σ 2^score of each row, as Σ 2^(score - peak) and the peak, [N] each."""

    def __init__(self, like: Tensor, rows: int, dtype: torch.dtype) -> None:
        self.sums = like.new_zeros(rows, dtype=dtype)
        self.peaks = like.new_full((rows,), -torch.inf, dtype=dtype)

    def add_matches(self, block: ScoreBlock, rows: Tensor, scores: Tensor) -> None:
        """Add single cells of the block: their rows in it and their scores, [h] each."""
        peaks = self.peaks[block.rows]  # [n]
        new_peaks = peaks.scatter_reduce(0, rows, scores, "amax")
        shift = self._rescale(block, new_peaks)
        shift_of_cells = shift.index_select(0, rows)
        terms = (scores - shift_of_cells).exp2_()
        self.sums[block.rows].index_add_(0, rows, terms)

    def add_cells(self, block: ScoreBlock, scores: Tensor) -> None:
        """Add all cells [n, m] of the block; overwrites `scores`."""
        new_peaks = torch.maximum(self.peaks[block.rows], scores.amax(1))
        shift = self._rescale(block, new_peaks)
        terms = scores.sub_(shift[:, None]).exp2_()
        self.sums[block.rows].add_(terms.sum(1))

    def _rescale(self, block: ScoreBlock, new_peaks: Tensor) -> Tensor:
        """Make the sums of the block's rows relative to new peaks [n]; returns these, with 0 for
        -inf.
        """
        shift = _finite(new_peaks)
        peaks = self.peaks[block.rows]
        # Slices are views: both write into the running sums.
        self.sums[block.rows].mul_((peaks - shift).exp2_())
        peaks.copy_(new_peaks)
        return shift

    def logarithms(self) -> Tensor:
        """Natural log-sums; -inf for rows without cells."""
        return (self.sums.log2() + _finite(self.peaks)) * math.log(2)


class _InBatchLogSums(torch.autograd.Function):
    """The log-sums of `in_batch_log_sums`; keys are None where they are the queries."""

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
        """queries [N, d], keys [K, d], targets [N], values [K] -> log-sums of targets and of all
        cells, [N] each.
        """
        blocks = fewest_products(visible, len(values), keys is None, queries.device.type)
        target_matches = TargetMatches(targets, values, blocks)
        settings = (visible.to(queries.device), blocks, scale, dtype)
        block_scores = BlockScores(queries, keys, *settings)

        target = _LogSums(queries, len(queries), block_scores.sums)
        total = _LogSums(queries, len(queries), block_scores.sums)
        for block in blocks:
            for side, scores in block_scores.sides(block):
                matches = target_matches.matches(side, scores.stride())
                match_scores = _flat(scores).index_select(0, matches.offsets)
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
        """Gradients of the log-sums, [N] each -> those of queries [N, d] and of keys [K, d]."""
        queries, keys, target_log_sums, total_log_sums = ctx.saved_tensors
        _, blocks, scale, _ = ctx.settings
        # Scores are computed again: to keep them would take the whole [N, K] matrix.
        block_scores = BlockScores(queries, keys, *ctx.settings)
        target = _LogSumGradient.of(target_log_sums, grad_target)
        total = _LogSumGradient.of(total_log_sums, grad_total)

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
            grad_products = _grad_products(block_scores, ctx.target_matches, block, target, total)
            grad_products = block_scores.narrowed(grad_products)  # [n, m]
            block_queries = block_scores.queries[block.rows]
            block_keys = block_scores.keys[block.keys]
            if grad_queries is not None:
                _add_product(grad_queries[block.rows], grad_products, block_keys)
            if grad_keys is not None:
                _add_product(grad_keys[block.keys], grad_products.T, block_queries)

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


class _LogSumGradient(NamedTuple):
    """Log-sums [N] in base 2, and the loss's gradient with respect to them; both finite, and 0 for
    an empty sum.
    """

    log_sums: Tensor
    grad_log_sums: Tensor

    @staticmethod
    def of(log_sums: Tensor, grad_log_sums: Tensor) -> "_LogSumGradient":
        base_2 = _finite(log_sums * math.log2(math.e))
        return _LogSumGradient(base_2, grad_log_sums.masked_fill(log_sums.isneginf(), 0))

    def of_rows(self, rows: slice) -> "_LogSumGradient":
        return _LogSumGradient(self.log_sums[rows], self.grad_log_sums[rows])


def _grad_products(
    block_scores: BlockScores,
    target_matches: TargetMatches,
    block: ScoreBlock,
    target: _LogSumGradient,
    total: _LogSumGradient,
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
        gradients.append(_grad_scores(scores, matches, target_of_rows, total_of_rows))

    grad_products, *grad_mirrors = gradients
    for grad_mirror in grad_mirrors:
        grad_products.add_(grad_mirror.T)
    return grad_products


def _grad_scores(
    scores: Tensor, matches: TargetCells, target: _LogSumGradient, total: _LogSumGradient
) -> Tensor:
    """Gradient with respect to the natural scores of one side of a block, [n, m]; overwrites
    `scores`.

    The gradient of a log-sum in a score is that term's share of the sum, 2^(score - log-sum).
    """
    # Those of matches [h] come first, because the shares of all cells overwrite the scores.
    match_log_sums = target.log_sums.index_select(0, matches.rows)
    grad_match_log_sums = target.grad_log_sums.index_select(0, matches.rows)
    match_scores = _flat(scores).index_select(0, matches.offsets)
    match_shares = match_scores.sub_(match_log_sums).exp2_()
    grad_matches = match_shares.mul_(grad_match_log_sums)

    shares = scores.sub_(total.log_sums[:, None]).exp2_()
    grad_scores = shares.mul_(total.grad_log_sums[:, None])
    _flat(grad_scores).index_add_(0, matches.offsets, grad_matches)
    return grad_scores


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

    >>> keys = torch.tensor([[0.0], [1.0], [2.0]])
    >>> targets, values = torch.tensor([7]), torch.tensor([7, 7, 5])
    >>> everything = Visible(*(torch.tensor([n]) for n in (0, 3, 0, 0)))
    >>> target, total = best_log_sums(torch.ones(1, 1), keys, targets, values, everything, scale=1.0, k=2)
    >>> target, (total - math.log(math.e + math.e**2)).abs() < 1e-6
    (tensor([1.]), tensor([True]))
    """
    num_best = min(k, len(keys))
    best, is_visible = _best_keys(queries.detach(), keys.detach(), visible, num_best)  # [N, k]

    # The scores of the best keys are computed again, with a gradient.
    best_keys = keys.index_select(0, best.flatten()).unflatten(0, best.shape)  # [N, k, d]
    scores = torch.einsum("nd,nkd->nk", queries, best_keys) * scale
    if scores.dtype != torch.float64:
        scores = scores.float()

    holds_target = values[best] == targets[:, None]
    target = _log_sum(scores, is_visible & holds_target)
    total = _log_sum(scores, is_visible)
    return target, total


@torch.no_grad()
def _best_keys(queries: Tensor, keys: Tensor, visible: Visible, k: int) -> tuple[Tensor, Tensor]:
    """The k best keys of each query, int64 [N, k], and whether it sees each of them, bool [N, k]."""
    num_keys = len(keys)
    num_queries = len(queries)
    rows_at_once = max(1, CELLS_AT_ONCE // max(1, num_keys))
    best_scores: list[Tensor] = []
    indices: list[Tensor] = []
    for start in range(0, num_queries, rows_at_once):
        rows = slice(start, min(start + rows_at_once, num_queries))
        scores = queries[rows] @ keys.T
        hidden = visible[rows].hides(slice(0, num_keys))
        scores.masked_fill_(hidden, -torch.inf)
        best = scores.topk(k, dim=1)
        best_scores.append(best.values)
        indices.append(best.indices)

    # A query that sees fewer than k keys has hidden ones among its best.
    return torch.cat(indices), torch.cat(best_scores) > -torch.inf


def _log_sum(scores: Tensor, counted: Tensor) -> Tensor:
    """log Σ exp of the counted scores of each row; -inf, without a gradient, if there are none."""
    has_terms = counted.any(1)
    # A row of only -inf would have NaN gradients: such rows are filled with 0, and masked
    # afterwards.
    masked = scores.masked_fill(~counted, -torch.inf)
    filled = torch.where(has_terms[:, None], masked, torch.zeros_like(masked))
    return filled.logsumexp(1).masked_fill(~has_terms, -torch.inf)
