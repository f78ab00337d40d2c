"""The memory entries that positions read, and the probabilities that these give to the targets.

Shapes: n positions, k entries a position, S scales (1/τ, or θ), C cut-offs, h matches, V
vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from stages.memory.span_sums import (
    exponentials,
    finite,
    sums_of_entries,
    sums_of_matches,
    times_counts,
)


@dataclass(frozen=True)
class Entries:
    """Entries that n positions read: k each (at least one), ordered so that a cut-off c reads the
    first c.

    Neighbours from a datastore are sorted best first, those of the recent past nearest first.
    Missing entries are last.

    `scores` float [n, k]: similarity s of query and key, before temperature; -inf where missing.
    `values` int [n, k]: the token that followed each key; -1 where missing.
    `min_entries` int [n]: minimum number of entries read, whatever the cut-off (the local part of a
    union); None: 0.
    `counts` float [n, k]: number of original entries that each one represents in a merged
    datastore; None: one each.
    """

    scores: Float[Tensor, "n k"]
    values: Integer[Tensor, "n k"]
    min_entries: Integer[Tensor, " n"] | None = None
    counts: Float[Tensor, "n k"] | None = None

    def __getitem__(self, positions: slice | Tensor) -> "Entries":
        """Select the entries of some of the positions."""
        min_entries = None if self.min_entries is None else self.min_entries[positions]
        counts = None if self.counts is None else self.counts[positions]
        return Entries(self.scores[positions], self.values[positions], min_entries, counts)

    def read(self, cutoff: int) -> Tensor:
        """Scores float32 [n, k] of the entries that a cut-off reads; -inf for the others."""
        reach: int | Tensor = cutoff
        if self.min_entries is not None:
            reach = self.min_entries.clamp(min=cutoff)[:, None]
        columns = torch.arange(self.scores.shape[1], device=self.scores.device)
        return self.scores.float().masked_fill(columns >= reach, -torch.inf)


class Matches(NamedTuple):
    """Row and column of each entry that holds its position's target, in order of row, then column;
    both [h].
    """

    rows: Tensor
    columns: Tensor


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
        cell = (scale, cutoff)
        return LogSums(self.target[cell], self.total[cell], self.max_score[cell])

    @property
    def empty(self) -> Tensor:
        """Whether there is no memory to read, bool [...]."""
        return self.total.isneginf()

    @property
    def log_prob(self) -> Tensor:
        """log p_mem of the target, natural log, [...]; -inf where it is absent or nothing is read."""
        return torch.where(self.empty, self.target, self.target - self.total)


def find_matches(entries: Entries, targets: Integer[Tensor, " n"]) -> Matches:
    """Find the entries [n, k] whose value is the target of their position; targets int [n].

    Position 0 has its target 7 in columns 0 and 2. Position 1 has its target 5 nowhere:

    >>> entries = Entries(torch.zeros(2, 3), torch.tensor([[7, 5, 7], [7, 7, -1]]))
    >>> find_matches(entries, torch.tensor([7, 5]))
    Matches(rows=tensor([0, 0]), columns=tensor([0, 2]))
    """
    values = entries.values
    # One dtype for both sides: else torch would make a wider copy of all values.
    is_target = values == targets[:, None].to(values.dtype)  # [n, k]
    if values.device.type == "cpu":
        # NumPy takes a tenth of the time of torch.
        cells = torch.from_numpy(np.flatnonzero(is_target.numpy()))
    else:
        cells = is_target.flatten().nonzero()[:, 0]

    k = values.shape[1]
    return Matches(rows=cells // k, columns=cells % k)


def first_match(matches: Matches, positions: int, k: int) -> Int64[Tensor, " {positions}"]:
    """Column of each position's first entry that holds the target, int64 [positions]; k where there
    is none.

    >>> first_match(Matches(torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])), positions=3, k=4)
    tensor([1, 4, 0])
    """
    first = matches.columns.new_full((positions,), k)
    return first.scatter_reduce_(0, matches.rows, matches.columns, "amin")


def target_log_sums(
    entries: Entries, matches: Matches, scales: Sequence[float], cutoffs: Sequence[int]
) -> LogSums:
    """LogSums [S, C, n] over the first c entries, for every scale and every cut-off c.

    p_mem(w) = Σ_{j: v_j = w} c_j exp(s_j/τ) / Σ_j c_j exp(s_j/τ), with counts c_j. Each scale takes
    one pass over the entries. Entries need not be sorted by score: each sum is relative to the best
    score that its cut-off reads.

    Args:
        entries: those of n positions; if `min_entries` exceeds a cut-off, that many are read.
        matches: `find_matches` of the entries.
        scales: factors of the scores (1/τ, or θ; 0 is legal).
        cutoffs: increasing numbers of entries; those above k read all entries.
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), equation 2; with θ and entries of the
    recent past Grave et al. 2017 (neural cache, arXiv:1612.04426), equation 3; with counts He et
    al. 2021 (arXiv:2109.04212), section 4.

    One position has the target 5. Its entries have scores 0, 0 and log 2, and hold 5, 7 and 5. The
    first two give the target 1/2; all three give (1 + 2) / (1 + 1 + 2).

    >>> import math

    >>> entries = Entries(torch.tensor([[0.0, 0.0, math.log(2)]]), torch.tensor([[5, 7, 5]]))
    >>> matches = find_matches(entries, torch.tensor([5]))
    >>> matches.columns
    tensor([0, 2])
    >>> sums = target_log_sums(entries, matches, scales=[1.0], cutoffs=[2, 3])
    >>> sums.log_prob.exp()[0, :, 0]
    tensor([0.5000, 0.7500])
    """
    log_sums = _prefix_log_sums(entries.scores, entries.counts, matches, scales, cutoffs)
    if entries.min_entries is None:
        return log_sums
    return _with_minimum(log_sums, entries, entries.min_entries, matches, scales, cutoffs)


def dense_log_sums(entries: Entries, scale: float, cutoff: int, vocabulary: int) -> LogSums:
    """LogSums of every token: target [n, V]; total and max_score, [n, 1], broadcast.

    Used in generation, and to find the most probable token. Scoring needs only the targets.

    One position, whose entries have scores 0, log 2 and 0, and hold tokens 1, 0 and 1 of three:

    >>> import math

    >>> entries = Entries(torch.tensor([[0.0, math.log(2), 0.0]]), torch.tensor([[1, 0, 1]]))
    >>> dense_log_sums(entries, scale=1.0, cutoff=3, vocabulary=3).log_prob.exp()
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    scores = entries.read(cutoff)  # [n, k]
    # A missing entry becomes token 0; its score, -inf, adds nothing there.
    tokens = entries.values.long().clamp(min=0)
    absent = scores.new_full((len(scores), vocabulary), -torch.inf)  # [n, V]

    # The best score of each entry's token [n, k], equal at all entries of a token. The gather ends
    # the statement, here and below, so that no further [n, V] stays in memory.
    peaks = absent.scatter_reduce(1, tokens, scores, "amax").gather(1, tokens)

    # The sum of the token's entries relative to that score, likewise.
    weights = exponentials(scores - finite(peaks), scale)
    times_counts(weights, entries.counts)
    sums = torch.zeros_like(absent).scatter_add_(1, tokens, weights).gather(1, tokens)

    # Sums become relative to the best score of the position. Logarithms and powers are only taken
    # of the few tokens that entries hold, not of the vocabulary.
    best = finite(peaks.amax(-1, keepdim=True))  # [n, 1]
    shift = finite(peaks - best) * scale
    masses = sums * shift.exp()
    # Entries of one token all write the same mass, so that it counts once.
    total = torch.zeros_like(absent).scatter_(1, tokens, masses).sum(-1, keepdim=True)
    target = absent.scatter_(1, tokens, sums.log() + shift)
    return LogSums(target, total.log(), best * scale)


class StoredTokens(NamedTuple):
    """The tokens that the entries of n positions hold, int64 [n, k], and their LogSums.

    `target` is [n, k]; `total` and `max_score`, [n, 1], broadcast. A missing entry appears as token
    0, and adds nothing to its sums.
    """

    tokens: Tensor
    log_sums: LogSums


def log_sums_of_stored_tokens(entries: Entries, scale: float, cutoff: int) -> StoredTokens:
    """LogSums of the tokens that entries hold; all other tokens are absent from the memory.

    The work depends on k, not on the size of the vocabulary.

    >>> import math

    >>> entries = Entries(torch.tensor([[0.0, math.log(2), 0.0]]), torch.tensor([[7, 5, 7]]))
    >>> log_sums_of_stored_tokens(entries, scale=1.0, cutoff=3).log_sums.log_prob.exp()
    tensor([[0.5000, 0.5000, 0.5000]])
    """
    tokens = entries.values.long().clamp(min=0)  # [n, k]

    # The tokens of a position are numbered from 0, equal tokens alike. So at most k numbers take
    # the place of the vocabulary.
    ordered, order = tokens.sort(dim=-1, stable=True)
    is_new = ordered[:, 1:] != ordered[:, :-1]
    numbers_in_order = is_new.long().cumsum(-1)  # [n, k - 1]: the first token has number 0
    numbers = torch.zeros_like(tokens).scatter_(1, order[:, 1:], numbers_in_order)

    numbered_entries = replace(entries, values=numbers)
    sums = dense_log_sums(numbered_entries, scale, cutoff, vocabulary=tokens.shape[1])
    target = sums.target.gather(1, numbers)
    return StoredTokens(tokens, LogSums(target, sums.total, sums.max_score))


def join_log_sums(parts: Sequence[LogSums]) -> LogSums:
    """LogSums of one memory whose entries are in several parts; shapes broadcast.

    The sums of the parts are added, relative to the best score of any part.

    One part has an entry of score 0 with the target; the other, one of score log 3 without it: 1 /
    (1 + 3).

    >>> import math

    >>> near = LogSums(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(0.0))
    >>> far = LogSums(torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(math.log(3)))
    >>> join_log_sums([near, far]).log_prob.exp()
    tensor(0.2500)
    """
    if len(parts) == 1:
        return parts[0]

    # All parts are relative to one peak: otherwise a part with much larger scores would overflow.
    # The peak of an empty part says nothing.
    peaks = [part.max_score.masked_fill(part.empty, -torch.inf) for part in parts]
    best = finite(reduce(torch.maximum, peaks))

    targets = []
    totals = []
    for part in parts:
        shift = part.max_score - best
        targets.append(part.target + shift)
        totals.append(part.total + shift)

    target = reduce(torch.logaddexp, targets)
    total = reduce(torch.logaddexp, totals)
    return LogSums(target, total, best)


def _with_minimum(
    log_sums: LogSums,
    entries: Entries,
    min_entries: Tensor,
    matches: Matches,
    scales: Sequence[float],
    cutoffs: Sequence[int],
) -> LogSums:
    """LogSums in which every cut-off reads at least the first `min_entries` entries of a position."""
    cutoff_column = torch.tensor(cutoffs, device=min_entries.device)[:, None]
    too_short = min_entries > cutoff_column  # [C, n]
    if not too_short.any():
        return log_sums

    # Scores beyond a position's minimum are masked, and its matches there left out.
    width = int(min_entries.max())
    columns = torch.arange(entries.scores.shape[1], device=min_entries.device)[:width]
    is_beyond = columns >= min_entries[:, None]
    scores = entries.scores[:, :width].masked_fill(is_beyond, -torch.inf)
    in_reach = matches.columns < min_entries[matches.rows]
    matches_in_reach = Matches(matches.rows[in_reach], matches.columns[in_reach])

    # So one cut-off, at `width`, is that of every position.
    minimum = _prefix_log_sums(scores, entries.counts, matches_in_reach, scales, [width])
    return LogSums(
        torch.where(too_short, minimum.target, log_sums.target),
        torch.where(too_short, minimum.total, log_sums.total),
        torch.where(too_short, minimum.max_score, log_sums.max_score),
    )


def _prefix_log_sums(
    scores: Tensor,
    counts: Tensor | None,
    matches: Matches,
    scales: Sequence[float],
    cutoffs: Sequence[int],
) -> LogSums:
    """LogSums [S, C, n] over the first c entries for every cut-off c, without regard to
    `min_entries`.
    """
    # Cut-offs above k all read k entries, whose sums are computed once.
    k = scores.shape[1]
    lengths = [min(cutoff, k) for cutoff in cutoffs]
    distinct = sorted(set(lengths))

    # Sums over the spans between cut-offs are added up to sums before each cut-off.
    scores = scores[:, : distinct[-1]].float()
    factors = scores.new_tensor(scales)[:, None]  # [S, 1]
    entry_spans = sums_of_entries(scores, counts, scales, distinct)
    match_spans = sums_of_matches(scores, counts, *matches, factors, distinct)
    total = entry_spans.running(factors)  # [S, C, n]
    target = match_spans.running(factors)

    # The target's sum is relative to the best score of its own entries, the total to that of all.
    factors = factors[..., None]  # [S, 1, 1]
    shift = finite(target.peaks - total.peaks) * factors
    max_score = finite(total.peaks) * factors
    log_sums = LogSums(target.sums.log() + shift, total.sums.log(), max_score)
    if len(distinct) == len(cutoffs):
        return log_sums

    # The sums of each distinct length, for all cut-offs that read so many.
    indices = torch.tensor([distinct.index(length) for length in lengths], device=scores.device)
    return LogSums(
        log_sums.target.index_select(1, indices),
        log_sums.total.index_select(1, indices),
        log_sums.max_score.index_select(1, indices),
    )
