"""A learned weight worked out one position at a time: float64 numpy, one pair of entries at a time."""

import math

import numpy as np

RANKS = (2, 4, 8, 16, 32, 64)
FARTHEST = 20.0


def of_neighbors(scores, values):
    """What is known of the entries that one position reads: scores s/τ, and the tokens that they
    hold.
    """
    read = sorted(
        ((s, v) for s, v in zip(scores, values, strict=True) if s > -math.inf),
        key=lambda one: -one[0],
    )[:64]
    if not read:
        return [0.0] * (1 + 2 * len(RANKS) + 2)
    best = read[0][0]
    behind = [best - score for score, _ in read] + [FARTHEST] * 64
    at = [math.log1p(min(FARTHEST, behind[rank - 1])) for rank in RANKS]
    distinct = [math.log(len({value for _, value in read[:rank]})) for rank in RANKS]
    total = sum(math.exp(max(score - best, -FARTHEST)) for score, _ in read)
    p = {value: 0.0 for _, value in read}
    for score, value in read:
        p[value] += math.exp(max(score - best, -FARTHEST)) / total
    return [
        best,
        *at,
        *distinct,
        math.log(max(p.values())),
        -sum(share * math.log(share) for share in p.values()),
    ]


def of_context(p_lm, count):
    """What is known before a search: the model's distribution [V], and how often the token before
    stands.
    """
    return [math.log(max(p_lm)), -sum(p * math.log(p) for p in p_lm if p > 0), math.log1p(count)]


def weight(network, inputs):
    """λ of one position, by the numbers of a report's `weight-network.json`."""
    x = (np.array(inputs) - network["mean"]) / network["spread"]
    logit = (
        network["offset"]
        + np.tanh(np.array(network["inner"]) @ x + network["bias"]) @ network["outer"]
    )
    return 1 / (1 + math.exp(-min(12.0, max(-12.0, logit))))
