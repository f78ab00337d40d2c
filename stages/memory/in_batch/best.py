"""In-batch memory that reads the best keys alone, as TRIME-MT does (`topk-mem` of the authors' code).

Shapes: N queries, K keys, d width, k best.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from stages.memory.in_batch.visible import Visible

CELLS_AT_ONCE = 1 << 22
"""Scores that are made at a time while the best are looked for."""


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

    Which keys these are is chosen without gradient; gradients flow into the chosen ones. With k ≥ K the sums are those
    of `in_batch_log_sums`. Of keys with equal scores any may be taken.

    Args: as of `in_batch_log_sums`; k: keys that a query reads at most.
    Returns: [N] each, natural log; -inf where there is no such key.

    Three keys that all see: the query takes the two best, of which one holds its target.

    >>> import math
    >>> everything = Visible(*(torch.tensor([n]) for n in (0, 3, 0, 0)))
    >>> target, total = best_log_sums(
    ...     torch.ones(1, 1), torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([7]), torch.tensor([7, 7, 5]),
    ...     everything, scale=1.0, k=2)
    >>> target, (total - math.log(math.e + math.e**2)).abs() < 1e-6
    (tensor([1.]), tensor([True]))
    """
    chosen, seen = _choose(queries.detach(), keys.detach(), visible, min(k, len(keys)))
    scores = torch.einsum("nd,nkd->nk", queries, keys.index_select(0, chosen.flatten()).unflatten(0, chosen.shape))
    scores = (scores * scale).float() if scores.dtype != torch.float64 else scores * scale
    hit = seen & (values[chosen] == targets[:, None])
    return _log_sum(scores, hit), _log_sum(scores, seen)


@torch.no_grad()
def _choose(queries: Tensor, keys: Tensor, visible: Visible, k: int) -> tuple[Tensor, Tensor]:
    """The k best keys of each query, int64 [N, k], and which of them it sees at all, bool [N, k]."""
    rows = max(1, CELLS_AT_ONCE // max(1, len(keys)))
    found = []
    for start in range(0, len(queries), rows):
        part = slice(start, min(start + rows, len(queries)))
        scores = (queries[part] @ keys.T).masked_fill_(visible[part].hides(slice(0, len(keys))), -torch.inf)
        found.append(scores.topk(k, dim=1))
    best = torch.cat([one.values for one in found])
    return torch.cat([one.indices for one in found]), best > -torch.inf


def _log_sum(scores: Tensor, counted: Tensor) -> Tensor:
    """log Σ exp of the counted scores of each row; -inf, without a gradient, where there are none."""
    some = counted.any(1)
    # A row of nothing but -inf has no gradient that is a number: one place of it is filled, and left out afterwards.
    masked = scores.masked_fill(~counted, -torch.inf)
    filled = torch.where(some[:, None], masked, torch.zeros_like(masked))
    return filled.logsumexp(1).masked_fill(~some, -torch.inf)
