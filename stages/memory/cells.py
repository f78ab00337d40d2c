"""The memory that positions read, and the probability that it gives to their targets.

Shapes: n positions, k cells a position, S temperatures, C cut-offs, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cells:
    """What each of n positions reads: k cells, best first; missing ones last.

    `scores` float [n, k]: similarity s of query and key, before temperature; -inf where missing.
    `values` int [n, k]: the token that followed each key; -1 where missing.
    """

    scores: Tensor
    values: Tensor


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
    `peak` [...], broadcasts: the best s/τ of the position; taken out, or large scores would leave
    float32 no digits for the ratio of the two.
    """

    target: Tensor
    total: Tensor
    peak: Tensor

    def at(self, scale: int, cutoff: int) -> "Masses":
        """Of masses [S, C, n], those of one scale and one cut-off, [n]."""
        return Masses(self.target[scale, cutoff], self.total[scale, cutoff], self.peak[scale, 0])

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
    """Place of the best cell that holds the target, int64 [positions]; k where there is none."""
    first = hits.places.new_full((positions,), k)
    return first.scatter_reduce_(0, hits.rows, hits.places, "amin")


def target_masses(cells: Cells, hits: Hits, scales: Sequence[float], cutoffs: Sequence[int]) -> Masses:
    """Masses [S, C, n] of reading the first c cells, for every scale and every cut-off c.

    p_mem(w) = Σ_{j: v_j = w} exp(s_j/τ) / Σ_j exp(s_j/τ). One pass over the cells a scale.

    Args:
        cells: k cells a position, best first.
        hits: `find_hits` of them.
        scales: scores are multiplied by each (1/τ, or θ; 0 is legal).
        cutoffs: rising numbers of cells, the last at most k.
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), equation 2.
    """
    scores = cells.scores[:, : cutoffs[-1]].float()
    best = scores[:, :1].nan_to_num(neginf=0.0)
    behind = scores - best
    hits = Hits(*(part[hits.places < cutoffs[-1]] for part in hits))
    pairs = [_masses_at(behind, hits, scale, cutoffs) for scale in scales]
    return Masses(
        target=torch.stack([target for target, _ in pairs]),
        total=torch.stack([total for _, total in pairs]),
        peak=torch.stack([best.T * scale for scale in scales]),
    )


def dense_log_prob(cells: Cells, scale: float, vocabulary: int) -> Tensor:
    """log p_mem of every token, [n, V], natural log, float32; a row of -inf where nothing is read.

    For generation; scoring needs the targets alone.
    """
    weights = _scaled(cells.scores.float(), scale).softmax(-1).nan_to_num(0.0)
    dense = weights.new_zeros(len(weights), vocabulary)
    return dense.scatter_add_(1, cells.values.long().clamp(min=0), weights).log()


def _scaled(scores: Tensor, scale: float) -> Tensor:
    if scale == 0:
        return torch.zeros_like(scores).masked_fill_(scores.isneginf(), -torch.inf)
    return scores * scale


def _masses_at(behind: Tensor, hits: Hits, scale: float, cutoffs: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Log masses of target and total, each [C, n], from how far scores lie behind the best."""
    scaled = _scaled(behind, scale)
    target = _target_mass(scaled[hits.rows, hits.places], hits, len(behind), cutoffs)
    weights = scaled.exp_()
    spans = [weights[:, a:b].sum(-1) for a, b in zip([0, *cutoffs], cutoffs, strict=False)]
    return target, torch.stack(spans).cumsum(0).log()


def _target_mass(scaled: Tensor, hits: Hits, positions: int, cutoffs: Sequence[int]) -> Tensor:
    """Log mass of the target, [C, n], from the scores [h] of the cells that hold it.

    It has a peak of its own: beside the best of all cells a far target would vanish in float32.
    """
    peak = scaled.new_full((positions,), -torch.inf).scatter_reduce_(0, hits.rows, scaled, "amax")
    peak = peak.nan_to_num(neginf=0.0)
    spans = torch.bucketize(hits.places, torch.tensor(cutoffs, device=scaled.device), right=True)
    sums = scaled.new_zeros(len(cutoffs) * positions)
    sums.index_add_(0, spans * positions + hits.rows, (scaled - peak[hits.rows]).exp())
    return sums.view(len(cutoffs), positions).cumsum(0).log() + peak
