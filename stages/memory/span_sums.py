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
        """Turn sums over the spans between cut-offs into sums over all entries before each cut-off."""
        sums = [self.sums[:, 0]]
        peaks = [self.peaks[0]]
        for span_sum, span_peak in zip(self.sums.unbind(1)[1:], self.peaks[1:], strict=True):
            peak = torch.maximum(peaks[-1], span_peak)
            # Both sums are relative to peaks of their own: the factors make them relative to `peak`.
            factor = torch.exp(finite(peaks[-1] - peak) * scales)
            span_factor = torch.exp(finite(span_peak - peak) * scales)
            sums.append(sums[-1] * factor + span_sum * span_factor)
            peaks.append(peak)
        return SpanSums(torch.stack(sums, dim=1), torch.stack(peaks))


def sums_of_entries(
    scores: Tensor, counts: Tensor | None, scales: Sequence[float], cutoffs: Sequence[int]
) -> SpanSums:
    """Sums over the entries of each span between cut-offs; scores [n, k]."""
    spans = [slice(start, stop) for start, stop in pairwise((0, *cutoffs))]
    peaks = torch.stack([scores[:, span].amax(-1) for span in spans])
    differences = torch.empty(scores.shape, device=scores.device)
    for span, peak in zip(spans, finite(peaks), strict=True):
        torch.sub(scores[:, span], peak[:, None], out=differences[:, span])

    # One scale may overwrite the differences; several need them again.
    weights = torch.empty_like(differences) if len(scales) > 1 else differences
    if counts is not None:
        counts = counts[:, : cutoffs[-1]]
    sums = []
    for scale in scales:
        times_counts(exponentials(differences, scale, out=weights), counts)
        sums.append(torch.stack([weights[:, span].sum(-1) for span in spans]))
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
        rows, columns: [h] places of the matches in `scores`.
        scales: [S, 1].
        cutoffs: C of them, rising.
    """
    in_reach = columns < cutoffs[-1]
    rows = rows[in_reach]
    columns = columns[in_reach]
    match_scores = scores[rows, columns]

    # Each span of each position is a cell; its matches are reduced to one number.
    spans = torch.bucketize(columns, torch.tensor(cutoffs, device=columns.device), right=True)
    cells = spans * len(scores) + rows
    empty = scores.new_full((len(cutoffs) * len(scores),), -torch.inf)
    peaks = empty.scatter_reduce_(0, cells, match_scores, "amax")

    weights = ((match_scores - peaks[cells])[:, None] * scales.T).exp_()
    match_counts = None if counts is None else counts[rows, columns][:, None]
    times_counts(weights, match_counts)
    sums = scores.new_zeros(len(peaks), len(scales)).index_add_(0, cells, weights)

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
