"""Slow, obvious twins of the memory's probabilities: float64, one entry at a time."""

import math


def log_sums(scores, values, target, scale, cutoff, counts=None):
    """(target mass, total mass) of the first entries, each of which counts so often; exact sums of
    exponentials.
    """
    target_mass = total = 0.0
    for score, value, count in list(zip(scores, values, counts or [1] * len(scores), strict=True))[
        :cutoff
    ]:
        if value < 0:
            continue
        weight = count * math.exp(score * scale)
        total += weight
        if value == target:
            target_mass += weight
    return target_mass, total


def probability(scores, values, target, scale, cutoff):
    """p_mem(target), or None where there is no memory."""
    target_mass, total = log_sums(scores, values, target, scale, cutoff)
    return None if total == 0 else target_mass / total


def interpolated(p_lm, p_mem, lam):
    """p = (1 - lam) p_lm + lam p_mem; p_lm where there is no memory."""
    return p_lm if p_mem is None else (1 - lam) * p_lm + lam * p_mem
