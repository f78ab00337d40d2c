"""Sums of exponentials over the spans of entries between cut-offs."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class SpanSums(NamedTuple):
    """Σ exp((s - peak) scale), [S, C, n], and the peaks before scaling, [C, n]; -inf for an empty
    sum.
    """

    sums: Tensor
    peaks: Tensor

    def running(self, scales: Tensor) -> "SpanSums":
        """Turn sums over the spans between cut-offs into sums over all entries before each cut-off.

        Args:
            scales: those of the sums, [S, 1].

        Two spans of one position: two entries of score 0, then one of score log 3.

        >>> sums = torch.tensor([[[2.0], [1.0]]])
        >>> peaks = torch.tensor([[0.0], [math.log(3)]])
        >>> total = SpanSums(sums, peaks).running(torch.ones(1, 1))
        >>> (total.sums * total.peaks.exp()).flatten()  # 2, and 2 + 3
        tensor([2., 5.])
        """
        total = self.sums[:, 0]  # [S, n]
        peak = self.peaks[0]  # [n]
        sums = [total]
        peaks = [peak]
        for span in range(1, len(self.peaks)):
            # Both sums are relative to peaks of their own: the factors make them relative to the
            # larger one.
            span_peak = self.peaks[span]
            new_peak = torch.maximum(peak, span_peak)
            factor = torch.exp(finite(peak - new_peak) * scales)
            span_factor = torch.exp(finite(span_peak - new_peak) * scales)

            total = total * factor + self.sums[:, span] * span_factor
            peak = new_peak
            sums.append(total)
            peaks.append(peak)
        return SpanSums(torch.stack(sums, dim=1), torch.stack(peaks))


def sums_of_entries(
    scores: Tensor, counts: Tensor | None, scales: Sequence[float], cutoffs: Sequence[int]
) -> SpanSums:
    """Sums over the entries of each span between cut-offs.

    Args:
        scores: [n, k], where k is the last cut-off.
        counts: [n, k or more] of each entry; None: each counts once.
        scales: S of them.
        cutoffs: C of them, rising.
    """
    spans = [slice(start, stop) for start, stop in pairwise((0, *cutoffs))]
    peaks = torch.stack([scores[:, span].amax(-1) for span in spans])  # [C, n]

    # Written span by span into one array [n, k], so that all are exponentiated at once.
    differences = torch.empty(scores.shape, device=scores.device)
    for span, peak in zip(spans, finite(peaks), strict=True):
        torch.sub(scores[:, span], peak[:, None], out=differences[:, span])

    # One scale may overwrite the differences; several need them again.
    weights = torch.empty_like(differences) if len(scales) > 1 else differences
    if counts is not None:
        counts = counts[:, : cutoffs[-1]]
    sums = []
    for scale in scales:
        exponentials(differences, scale, out=weights)
        times_counts(weights, counts)
        span_sums = [weights[:, span].sum(-1) for span in spans]
        sums.append(torch.stack(span_sums))
    return SpanSums(torch.stack(sums), peaks)


def sums_of_matches(
    scores: Tensor,
    counts: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    scales: Tensor,
    cutoffs: Sequence[int],
) -> SpanSums:
    """Sums over the entries that hold the target, for each span between cut-offs.

    The matches have peaks of their own: relative to the best of all entries, a distant target would
    vanish in float32.

    Args:
        scores: [n, k].
        counts: [n, k] of each entry; None: each counts once.
        rows, columns: of the matches in `scores`, [h] each.
        scales: [S, 1].
        cutoffs: C of them, rising.
    """
    in_reach = columns < cutoffs[-1]
    rows = rows[in_reach]
    columns = columns[in_reach]
    match_scores = scores[rows, columns]

    # Each span of each position is a cell; its matches are reduced to one number.
    bounds = torch.tensor(cutoffs, device=columns.device)
    spans = torch.bucketize(columns, bounds, right=True)
    cells = spans * len(scores) + rows
    num_cells = len(cutoffs) * len(scores)
    peaks = scores.new_full((num_cells,), -torch.inf)
    peaks.scatter_reduce_(0, cells, match_scores, "amax")

    differences = match_scores - peaks[cells]
    weights = (differences[:, None] * scales.T).exp_()  # [h, S]
    if counts is not None:
        times_counts(weights, counts[rows, columns][:, None])
    sums = scores.new_zeros(num_cells, len(scales))
    sums.index_add_(0, cells, weights)

    shape = (len(cutoffs), len(scores))
    return SpanSums(sums.T.reshape(-1, *shape), peaks.view(shape))


def exponentials(differences: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """exp(differences · scale); 0 where a difference is -inf, even at scale 0.

    Uses exp2, which takes half the time of exp.
    """
    # At scale 0 the product of -inf and 0 would be NaN.
    if scale == 0:
        if out is None:
            return (differences != -torch.inf).float()
        return torch.ne(differences, -torch.inf, out=out)
    return torch.mul(differences, scale * math.log2(math.e), out=out).exp2_()


def times_counts(weights: Tensor, counts: Tensor | None) -> Tensor:
    """Multiply weights by counts, in place; None: leave them as they are."""
    return weights if counts is None else weights.mul_(counts)


def finite(values: Tensor) -> Tensor:
    """Replace -inf and NaN by 0: peaks of empty sums, and differences from them. Those sums are 0
    and need no peak.
    """
    return values.nan_to_num(nan=0.0, neginf=0.0)
