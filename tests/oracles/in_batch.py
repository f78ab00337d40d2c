"""In-batch memory, slowly: one entry at a time, float64; and whole matrices, for gradients of
autograd.
"""

import math

import torch


def reads(visible, i, j):
    """Whether query i reads key j."""
    start, stop, hole_start, hole_stop = (
        int(bound[i])
        for bound in (visible.start, visible.stop, visible.hole_start, visible.hole_stop)
    )
    return start <= j < stop and not hole_start <= j < hole_stop


def log_sums(queries, keys, targets, values, visible, scale):
    """([log Σ over visible entries of the target], [the same over all visible entries])."""
    target, total = [], []
    for i, query in enumerate(queries.tolist()):
        entries = [
            (scale * sum(q * k for q, k in zip(query, key, strict=True)), int(value))
            for j, (key, value) in enumerate(zip(keys.tolist(), values, strict=True))
            if reads(visible, i, j)
        ]
        target.append(log_sum([score for score, value in entries if value == int(targets[i])]))
        total.append(log_sum([score for score, _ in entries]))
    return target, total


def log_sum(scores):
    if not scores:
        return -math.inf
    peak = max(scores)
    return peak + math.log(math.fsum(math.exp(score - peak) for score in scores))


def dense_log_sums(queries, keys, targets, values, visible, scale):
    """As `log_sums`, differentiable, from whole matrices."""
    seen = torch.tensor(
        [[reads(visible, i, j) for j in range(len(keys))] for i in range(len(queries))]
    )
    scores = scale * queries @ keys.T
    same = targets[:, None] == values
    return _row_sums(scores, seen & same), _row_sums(scores, seen)


def _row_sums(scores, entries):
    """logsumexp of the entries of each row; a constant -inf where there is none."""
    empty = ~entries.any(1)
    filled = scores.masked_fill(~entries, -torch.inf).masked_fill(empty[:, None], 0.0)
    return filled.logsumexp(1).masked_fill(empty, -torch.inf)
