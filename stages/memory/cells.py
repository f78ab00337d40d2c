"""The memory that positions read, and the probability that it gives to their targets.

Shapes: n positions, k cells a position, S scales (1/τ, or θ), C cut-offs, h hits, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cells:
    """What each of n positions reads: k cells (at least one), in the order in which cut-offs count.

    Neighbours of a datastore stand best first, the recent past nearest first; missing cells last.

    `scores` float [n, k]: similarity s of query and key, before temperature; -inf where missing.
    `values` int [n, k]: the token that followed each key; -1 where missing.
    `least` int [n]: so many first cells are read whatever the cut-off (the local part of a union).
    """

    scores: Tensor
    values: Tensor
    least: Tensor | None = None

    def __getitem__(self, positions: slice | Tensor) -> "Cells":
        """The cells of some of the positions."""
        least = None if self.least is None else self.least[positions]
        return Cells(self.scores[positions], self.values[positions], least)


class Hits(NamedTuple):
    """The cells that hold their position's target, in order of position, then place; both [h]."""

    rows: Tensor
    places: Tensor


@dataclass(frozen=True)
class Masses:
    """Log of what a memory holds, unnormalised, so that any reader can use it.

    `target` [...]: log of the sum of exp(s/τ - peak) over cells whose value is the target; -inf if
    it is absent.
    `total` [...]: the same over all cells; -inf where the memory is empty.
    `peak` [...], broadcasts: the best s/τ that the position reads; taken out, or large scores would
    leave float32 no digits for the ratio of the two.
    """

    target: Tensor
    total: Tensor
    peak: Tensor

    def at(self, scale: int, cutoff: int) -> "Masses":
        """Of masses [S, C, n], those of one scale and one cut-off, [n]."""
        return Masses(self.target[scale, cutoff], self.total[scale, cutoff], self.peak[scale, cutoff])

    @property
    def empty(self) -> Tensor:
        """Where there is no memory to read, bool [...]."""
        return self.total.isneginf()

    @property
    def log_prob(self) -> Tensor:
        """log p_mem of the target, natural log, [...]; -inf where it is absent or nothing is read."""
        return torch.where(self.empty, self.target, self.target - self.total)


def find_hits(cells: Cells, targets: Tensor) -> Hits:
    """The cells whose value is the target of their position; targets int [n]."""
    same = cells.values == targets[:, None].to(cells.values.dtype)
    return Hits(*same.nonzero().unbind(-1))


def first_hit(hits: Hits, positions: int, k: int) -> Tensor:
    """Place of the first cell that holds the target, int64 [positions]; k where there is none."""
    first = hits.places.new_full((positions,), k)
    return first.scatter_reduce_(0, hits.rows, hits.places, "amin")


def target_masses(cells: Cells, hits: Hits, scales: Sequence[float], cutoffs: Sequence[int]) -> Masses:
    """Masses [S, C, n] of reading the first c cells, for every scale and every cut-off c.

    p_mem(w) = Σ_{j: v_j = w} exp(s_j/τ) / Σ_j exp(s_j/τ). One pass over the cells a scale. Cells
    need not stand best first: what a cut-off reads is summed behind the best that it reads.

    Args:
        cells: of n positions; where `least` is more than a cut-off, so many are read.
        hits: `find_hits` of them.
        scales: scores are multiplied by each (1/τ, or θ; 0 is legal).
        cutoffs: rising numbers of cells; beyond k there are none.
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), equation 2; with θ and cells of the
    recent past Grave et al. 2017 (neural cache, arXiv:1612.04426), equation 3.
    """
    masses = _prefix_masses(cells.scores, hits, scales, cutoffs)
    if cells.least is None:
        return masses
    return _with_least(masses, cells.scores, cells.least, hits, scales, cutoffs)


def dense_masses(cells: Cells, scale: float, cutoff: int, vocabulary: int) -> Masses:
    """Masses of every token: target [n, V]; total and peak, [n, 1], broadcast.

    For generation, and where the best token is asked for; scoring needs the targets alone.
    """
    reach = cutoff if cells.least is None else cells.least.clamp(min=cutoff)[:, None]
    places = torch.arange(cells.scores.shape[1], device=cells.scores.device)
    scores = cells.scores.float().masked_fill(places >= reach, -torch.inf)
    tokens = cells.values.long().clamp(min=0)
    peaks = scores.new_full((len(scores), vocabulary), -torch.inf).scatter_reduce_(1, tokens, scores, "amax")
    weights = _exponentials(scores - _finite(peaks.gather(1, tokens)), scale)
    sums = torch.zeros_like(peaks).scatter_add_(1, tokens, weights)
    best = _finite(peaks.amax(-1, keepdim=True))
    behind = _finite(peaks - best) * scale
    return Masses(sums.log() + behind, (sums * behind.exp()).sum(-1, keepdim=True).log(), best * scale)


def joined(parts: Sequence[Masses]) -> Masses:
    """Masses of one memory whose cells lie in several parts; shapes broadcast.

    The sums of all cells are the sums of the parts' sums, behind the best score of any part.
    """
    if len(parts) == 1:
        return parts[0]
    best = _finite(reduce(torch.maximum, [part.peak.masked_fill(part.empty, -torch.inf) for part in parts]))
    target = reduce(torch.logaddexp, [part.target + (part.peak - best) for part in parts])
    total = reduce(torch.logaddexp, [part.total + (part.peak - best) for part in parts])
    return Masses(target, total, best)


def _with_least(
    masses: Masses, scores: Tensor, least: Tensor, hits: Hits, scales: Sequence[float], cutoffs: Sequence[int]
) -> Masses:
    """Masses in which no cut-off reads less than the first `least` cells of a position."""
    longer = least > torch.tensor(cutoffs, device=least.device)[:, None]
    if not longer.any():
        return masses
    most = int(least.max())
    places = torch.arange(scores.shape[1], device=scores.device)[:most]
    scores = scores[:, :most].masked_fill(places >= least[:, None], -torch.inf)
    within = hits.places < least[hits.rows]
    lower = _prefix_masses(scores, Hits(hits.rows[within], hits.places[within]), scales, [most])
    return Masses(
        torch.where(longer, lower.target, masses.target),
        torch.where(longer, lower.total, masses.total),
        torch.where(longer, lower.peak, masses.peak),
    )


class _Sums(NamedTuple):
    """Σ exp((s - peak) scale), [S, C, n], and peaks before scaling, [C, n]; -inf where there is none."""

    sums: Tensor
    peaks: Tensor

    def running(self, scales: Tensor) -> "_Sums":
        """From sums over the spans between cut-offs to sums over all cells before each cut-off."""
        sums, peaks = [self.sums[:, 0]], [self.peaks[0]]
        for more, peak in zip(self.sums.unbind(1)[1:], self.peaks[1:], strict=True):
            best = torch.maximum(peaks[-1], peak)
            before, beside = (torch.exp(_finite(one - best) * scales) for one in (peaks[-1], peak))
            sums.append(sums[-1] * before + more * beside)
            peaks.append(best)
        return _Sums(torch.stack(sums, dim=1), torch.stack(peaks))


def _prefix_masses(scores: Tensor, hits: Hits, scales: Sequence[float], cutoffs: Sequence[int]) -> Masses:
    """Masses [S, C, n] of the first c cells for every cut-off c, whatever `least` says."""
    k = scores.shape[1]
    distinct = sorted({min(cutoff, k) for cutoff in cutoffs})
    scores = scores[:, : distinct[-1]].float()
    factors = scores.new_tensor(scales)[:, None]
    total = _sums_of_cells(scores, scales, distinct).running(factors)
    target = _sums_of_hits(scores, hits, factors, distinct).running(factors)
    behind = _finite(target.peaks - total.peaks) * factors[..., None]
    masses = target.sums.log() + behind, total.sums.log(), _finite(total.peaks) * factors[..., None]
    if len(distinct) < len(cutoffs):
        places = torch.tensor([distinct.index(min(cutoff, k)) for cutoff in cutoffs], device=scores.device)
        return Masses(*(part.index_select(1, places) for part in masses))
    return Masses(*masses)


def _sums_of_cells(scores: Tensor, scales: Sequence[float], cutoffs: Sequence[int]) -> _Sums:
    """Over the cells of each span between cut-offs; scores [n, k]."""
    spans = [slice(*span) for span in pairwise((0, *cutoffs))]
    peaks = torch.stack([scores[:, span].amax(-1) for span in spans])
    behind = torch.empty(scores.shape, device=scores.device)
    for span, peak in zip(spans, _finite(peaks), strict=True):
        torch.sub(scores[:, span], peak[:, None], out=behind[:, span])
    weights = torch.empty_like(behind) if len(scales) > 1 else behind
    sums = []
    for scale in scales:
        _exponentials(behind, scale, out=weights)
        sums.append(torch.stack([weights[:, span].sum(-1) for span in spans]))
    return _Sums(torch.stack(sums), peaks)


def _sums_of_hits(scores: Tensor, hits: Hits, scales: Tensor, cutoffs: Sequence[int]) -> _Sums:
    """Over the cells that hold the target; scales [S, 1].

    They have peaks of their own: beside the best of all cells a far target would vanish in float32.
    """
    shape = len(cutoffs), len(scores)
    rows, places = (part[hits.places < cutoffs[-1]] for part in hits)
    spans = torch.bucketize(places, torch.tensor(cutoffs, device=places.device), right=True)
    where, found = spans * len(scores) + rows, scores[rows, places]
    peaks = scores.new_full((shape[0] * shape[1],), -torch.inf).scatter_reduce_(0, where, found, "amax")
    behind = (found - peaks[where])[:, None] * scales.T
    sums = scores.new_zeros(len(peaks), len(scales)).index_add_(0, where, behind.exp_())
    return _Sums(sums.T.reshape(-1, *shape), peaks.view(shape))


def _exponentials(behind: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """exp(behind · scale); 0 where behind is -inf, whatever the scale. As exp2: half the time of exp."""
    if scale == 0:
        return torch.ne(behind, -torch.inf, out=out) if out is not None else (behind != -torch.inf).float()
    return torch.mul(behind, scale * math.log2(math.e), out=out).exp2_()


def _finite(values: Tensor) -> Tensor:
    """Peaks of nothing, and what lies behind them, become 0: their sums are 0 and need no peak."""
    return values.nan_to_num(nan=0.0, neginf=0.0)
