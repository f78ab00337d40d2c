"""The memory entries that positions read, and the probabilities that these give to the targets.

Shapes: n positions, k entries a position, S scales (1/τ, or θ), C cut-offs, h matches, V
vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor


@dataclass(frozen=True)
class Entries:
    """Entries that n positions read: k each (at least one), ordered so that a cut-off c reads the
    first c.

    Neighbours from a datastore are sorted best first, those of the recent past nearest first.
    Missing entries are last.

    `scores` float [n, k]: similarity s of query and key, before temperature; -inf where missing.
    `values` int [n, k]: the token that followed each key; -1 where missing.
    `least` int [n]: minimum number of entries read, whatever the cut-off (the local part of a
    union); None: 0.
    `counts` float [n, k]: number of original entries that each one represents in a merged
    datastore; None: one each.
    """

    scores: Float[Tensor, "n k"]
    values: Integer[Tensor, "n k"]
    least: Integer[Tensor, " n"] | None = None
    counts: Float[Tensor, "n k"] | None = None

    def __getitem__(self, positions: slice | Tensor) -> "Entries":
        """Select the entries of some of the positions."""
        least, counts = (
            None if part is None else part[positions] for part in (self.least, self.counts)
        )
        return Entries(self.scores[positions], self.values[positions], least, counts)

    def read(self, cutoff: int) -> Tensor:
        """Scores float32 [n, k] of the entries that a cut-off reads; -inf for the others."""
        reach = cutoff if self.least is None else self.least.clamp(min=cutoff)[:, None]
        places = torch.arange(self.scores.shape[1], device=self.scores.device)
        return self.scores.float().masked_fill(places >= reach, -torch.inf)


class Matches(NamedTuple):
    """Row and column of each entry that holds its position's target, in order of row, then column;
    both [h].
    """

    rows: Tensor
    places: Tensor


@dataclass(frozen=True)
class LogSums:
    """Unnormalized log-probability mass in a memory, in a form that any reader can use.

    `target` [...]: log of the sum of exp(s/τ - max_score) over entries whose value is the target;
    -inf if it is absent.
    `total` [...]: the same over all entries; -inf where the memory is empty.
    `max_score` [...], broadcasts: the best s/τ that the position reads. It is subtracted because
    with large scores float32 would have no digits left for the ratio of the two sums.
    """

    target: Tensor
    total: Tensor
    max_score: Tensor

    def at(self, scale: int, cutoff: int) -> "LogSums":
        """Select the sums of one scale and one cut-off, [n], from log-sums [S, C, n]."""
        return LogSums(
            self.target[scale, cutoff], self.total[scale, cutoff], self.max_score[scale, cutoff]
        )

    @property
    def empty(self) -> Tensor:
        """Whether there is no memory to read, bool [...]."""
        return self.total.isneginf()

    @property
    def log_prob(self) -> Tensor:
        """log p_mem of the target, natural log, [...]; -inf where it is absent or nothing is read."""
        return torch.where(self.empty, self.target, self.target - self.total)


def find_matches(entries: Entries, targets: Integer[Tensor, " n"]) -> Matches:
    """Find the entries whose value is the target of their position; targets int [n].

    Position 0 has its target 7 at places 0 and 2. Position 1 has its target 5 nowhere:

    >>> entries = Entries(torch.zeros(2, 3), torch.tensor([[7, 5, 7], [7, 7, -1]]))
    >>> find_matches(entries, torch.tensor([7, 5]))
    Matches(rows=tensor([0, 0]), places=tensor([0, 2]))
    """
    same = entries.values == targets[:, None].to(entries.values.dtype)
    k = same.shape[1]
    if same.device.type == "cpu":  # numpy takes a tenth of the time of torch  # noqa: SIM108
        found = torch.from_numpy(np.flatnonzero(same.numpy()))
    else:
        found = same.flatten().nonzero()[:, 0]
    return Matches(found // k, found % k)


def first_match(matches: Matches, positions: int, k: int) -> Int64[Tensor, " {positions}"]:
    """Index of each position's first entry that holds the target, int64 [positions]; k where there
    is none.

    >>> first_match(Matches(torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])), positions=3, k=4)
    tensor([1, 4, 0])
    """
    first = matches.places.new_full((positions,), k)
    return first.scatter_reduce_(0, matches.rows, matches.places, "amin")


def target_log_sums(
    entries: Entries, matches: Matches, scales: Sequence[float], cutoffs: Sequence[int]
) -> LogSums:
    """LogSums [S, C, n] over the first c entries, for every scale and every cut-off c.

    p_mem(w) = Σ_{j: v_j = w} c_j exp(s_j/τ) / Σ_j c_j exp(s_j/τ), with counts c_j. Each scale takes
    one pass over the entries. Entries need not be sorted by score: each sum is relative to the best
    score that its cut-off reads.

    Args:
        entries: those of n positions; if `least` exceeds a cut-off, `least` entries are read.
        matches: `find_matches` of the entries.
        scales: factors of the scores (1/τ, or θ; 0 is legal).
        cutoffs: increasing numbers of entries; those above k read all entries.
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), equation 2; with θ and entries of the
    recent past Grave et al. 2017 (neural cache, arXiv:1612.04426), equation 3; with counts He et
    al. 2021 (arXiv:2109.04212), section 4.

    One position has the target 5. Its entries have scores 0, 0 and log 2, and hold 5, 7 and 5. The
    first two give the target 1/2; all three give (1 + 2) / (1 + 1 + 2).

    >>> entries = Entries(torch.tensor([[0.0, 0.0, math.log(2)]]), torch.tensor([[5, 7, 5]]))
    >>> matches = find_matches(entries, torch.tensor([5]))
    >>> matches.places
    tensor([0, 2])
    >>> sums = target_log_sums(entries, matches, scales=[1.0], cutoffs=[2, 3])
    >>> sums.log_prob.exp()[0, :, 0]
    tensor([0.5000, 0.7500])
    """
    log_sums = _prefix_log_sums(entries.scores, entries.counts, matches, scales, cutoffs)
    if entries.least is None:
        return log_sums
    return _with_least(log_sums, entries, entries.least, matches, scales, cutoffs)


def dense_log_sums(entries: Entries, scale: float, cutoff: int, vocabulary: int) -> LogSums:
    """LogSums of every token: target [n, V]; total and max_score, [n, 1], broadcast.

    Used in generation, and to find the most probable token. Scoring needs only the targets.

    One position, whose entries have scores 0, log 2 and 0, and hold tokens 1, 0 and 1 of three:

    >>> entries = Entries(torch.tensor([[0.0, math.log(2), 0.0]]), torch.tensor([[1, 0, 1]]))
    >>> dense_log_sums(entries, scale=1.0, cutoff=3, vocabulary=3).log_prob.exp()
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    scores, tokens = entries.read(cutoff), entries.values.long().clamp(min=0)
    none = scores.new_full((len(scores), vocabulary), -torch.inf)
    peaks = none.scatter_reduce(1, tokens, scores, "amax").gather(1, tokens)
    weights = _counted(_exponentials(scores - _finite(peaks), scale), entries.counts)
    sums = torch.zeros_like(none).scatter_add_(1, tokens, weights).gather(1, tokens)
    best = _finite(peaks.amax(-1, keepdim=True))
    behind = _finite(peaks - best) * scale  # logs and powers are only of the few tokens held
    total = torch.zeros_like(none).scatter_(1, tokens, sums * behind.exp()).sum(-1, keepdim=True)
    return LogSums(none.scatter_(1, tokens, sums.log() + behind), total.log(), best * scale)


class HeldTokens(NamedTuple):
    """The tokens that the entries of n positions hold, int64 [n, k], and their LogSums.

    `target` is [n, k]; `total` and `max_score`, [n, 1], broadcast. A missing entry appears as token
    0, and adds nothing to its sums.
    """

    tokens: Tensor
    log_sums: LogSums


def held_log_sums(entries: Entries, scale: float, cutoff: int) -> HeldTokens:
    """LogSums of the tokens that entries hold; all other tokens are absent from the memory.

    The work depends on k, not on the size of the vocabulary.

    >>> entries = Entries(torch.tensor([[0.0, math.log(2), 0.0]]), torch.tensor([[7, 5, 7]]))
    >>> held_log_sums(entries, scale=1.0, cutoff=3).log_sums.log_prob.exp()
    tensor([[0.5000, 0.5000, 0.5000]])
    """
    tokens = entries.values.long().clamp(min=0)
    ordered, order = tokens.sort(dim=-1, stable=True)
    # number of each token among the distinct tokens of its position
    changes = (ordered[:, 1:] != ordered[:, :-1]).long().cumsum(-1)
    numbers = torch.zeros_like(tokens).scatter_(1, order[:, 1:], changes)
    sums = dense_log_sums(replace(entries, values=numbers), scale, cutoff, tokens.shape[1])
    return HeldTokens(tokens, LogSums(sums.target.gather(1, numbers), sums.total, sums.max_score))


def joined(parts: Sequence[LogSums]) -> LogSums:
    """LogSums of one memory whose entries are in several parts; shapes broadcast.

    The sums of the parts are added, relative to the best score of any part.

    One part has an entry of score 0 with the target; the other, one of score log 3 without it: 1 /
    (1 + 3).

    >>> one, other = (LogSums(*map(torch.tensor, part)) for part in ((0.0, 0.0, 0.0), (-math.inf, 0.0, math.log(3))))
    >>> joined([one, other]).log_prob.exp()
    tensor(0.2500)
    """
    if len(parts) == 1:
        return parts[0]
    best = _finite(
        reduce(
            torch.maximum, [part.max_score.masked_fill(part.empty, -torch.inf) for part in parts]
        )
    )
    # All parts are relative to one peak: otherwise a part with much larger scores would overflow.
    target = reduce(torch.logaddexp, [part.target + (part.max_score - best) for part in parts])
    total = reduce(torch.logaddexp, [part.total + (part.max_score - best) for part in parts])
    return LogSums(target, total, best)


def _with_least(
    log_sums: LogSums,
    entries: Entries,
    least: Tensor,
    matches: Matches,
    scales: Sequence[float],
    cutoffs: Sequence[int],
) -> LogSums:
    """LogSums in which every cut-off reads at least the first `least` entries of a position."""
    longer = least > torch.tensor(cutoffs, device=least.device)[:, None]
    if not longer.any():
        return log_sums
    most = int(least.max())
    places = torch.arange(entries.scores.shape[1], device=least.device)[:most]
    scores = entries.scores[:, :most].masked_fill(places >= least[:, None], -torch.inf)
    within = matches.places < least[matches.rows]
    within_reach = Matches(matches.rows[within], matches.places[within])
    lower = _prefix_log_sums(scores, entries.counts, within_reach, scales, [most])
    return LogSums(
        torch.where(longer, lower.target, log_sums.target),
        torch.where(longer, lower.total, log_sums.total),
        torch.where(longer, lower.max_score, log_sums.max_score),
    )


class _Sums(NamedTuple):
    """Σ exp((s - peak) scale), [S, C, n], and the peaks before scaling, [C, n]; -inf for an empty
    sum.
    """

    sums: Tensor
    peaks: Tensor

    def running(self, scales: Tensor) -> "_Sums":
        """Turn sums over the spans between cut-offs into sums over all entries before each cut-off."""
        sums, peaks = [self.sums[:, 0]], [self.peaks[0]]
        for more, peak in zip(self.sums.unbind(1)[1:], self.peaks[1:], strict=True):
            best = torch.maximum(peaks[-1], peak)
            before, beside = (torch.exp(_finite(one - best) * scales) for one in (peaks[-1], peak))
            sums.append(sums[-1] * before + more * beside)
            peaks.append(best)
        return _Sums(torch.stack(sums, dim=1), torch.stack(peaks))


def _prefix_log_sums(
    scores: Tensor,
    counts: Tensor | None,
    matches: Matches,
    scales: Sequence[float],
    cutoffs: Sequence[int],
) -> LogSums:
    """LogSums [S, C, n] over the first c entries for every cut-off c, without regard to `least`."""
    k = scores.shape[1]
    distinct = sorted({min(cutoff, k) for cutoff in cutoffs})
    scores = scores[:, : distinct[-1]].float()
    factors = scores.new_tensor(scales)[:, None]
    total = _sums_of_entries(scores, counts, scales, distinct).running(factors)
    target = _sums_of_matches(scores, counts, matches, factors, distinct).running(factors)
    behind = _finite(target.peaks - total.peaks) * factors[..., None]
    log_sums = (
        target.sums.log() + behind,
        total.sums.log(),
        _finite(total.peaks) * factors[..., None],
    )
    if len(distinct) < len(cutoffs):
        places = torch.tensor(
            [distinct.index(min(cutoff, k)) for cutoff in cutoffs], device=scores.device
        )
        return LogSums(*(part.index_select(1, places) for part in log_sums))
    return LogSums(*log_sums)


def _sums_of_entries(
    scores: Tensor, counts: Tensor | None, scales: Sequence[float], cutoffs: Sequence[int]
) -> _Sums:
    """Sums over the entries of each span between cut-offs; scores [n, k]."""
    spans = [slice(*span) for span in pairwise((0, *cutoffs))]
    peaks = torch.stack([scores[:, span].amax(-1) for span in spans])
    behind = torch.empty(scores.shape, device=scores.device)
    for span, peak in zip(spans, _finite(peaks), strict=True):
        torch.sub(scores[:, span], peak[:, None], out=behind[:, span])
    weights = torch.empty_like(behind) if len(scales) > 1 else behind
    counts = None if counts is None else counts[:, : cutoffs[-1]]
    sums = []
    for scale in scales:
        _counted(_exponentials(behind, scale, out=weights), counts)
        sums.append(torch.stack([weights[:, span].sum(-1) for span in spans]))
    return _Sums(torch.stack(sums), peaks)


def _sums_of_matches(
    scores: Tensor, counts: Tensor | None, matches: Matches, scales: Tensor, cutoffs: Sequence[int]
) -> _Sums:
    """Sums over the entries that hold the target, for each span between cut-offs; scales [S, 1].

    The matches have peaks of their own: relative to the best of all entries, a distant target would
    vanish in float32.
    """
    shape = len(cutoffs), len(scores)
    rows, places = (part[matches.places < cutoffs[-1]] for part in matches)
    spans = torch.bucketize(places, torch.tensor(cutoffs, device=places.device), right=True)
    where, found = spans * len(scores) + rows, scores[rows, places]
    peaks = scores.new_full((shape[0] * shape[1],), -torch.inf).scatter_reduce_(
        0, where, found, "amax"
    )
    behind = (found - peaks[where])[:, None] * scales.T
    weights = _counted(behind.exp_(), None if counts is None else counts[rows, places][:, None])
    sums = scores.new_zeros(len(peaks), len(scales)).index_add_(0, where, weights)
    return _Sums(sums.T.reshape(-1, *shape), peaks.view(shape))


def _exponentials(behind: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """exp(behind · scale); 0 where behind is -inf, even at scale 0. Uses exp2, which takes half the
    time of exp.
    """
    if scale == 0:
        return (
            torch.ne(behind, -torch.inf, out=out)
            if out is not None
            else (behind != -torch.inf).float()
        )
    return torch.mul(behind, scale * math.log2(math.e), out=out).exp2_()


def _counted(weights: Tensor, counts: Tensor | None) -> Tensor:
    """Multiply weights by counts, in place; None: leave them as they are."""
    return weights if counts is None else weights.mul_(counts)


def _finite(values: Tensor) -> Tensor:
    """Replace -inf and NaN by 0: peaks of empty sums, and differences from them. Those sums are 0
    and need no peak.
    """
    return values.nan_to_num(nan=0.0, neginf=0.0)
