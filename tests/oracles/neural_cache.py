"""Slow, obvious twins of memory of the recent past: float64, one position and one pair at a time.

Written from Grave et al. 2017 (arXiv:1612.04426, equations 2-4) and Zhong et al. 2022 (TRIME,
arXiv:2205.12674, equations 5-6), and from what the project says that sources read.
"""

import math


def similarity(q, k, kind):
    """s(q, k) of two lists of numbers."""
    if kind == "l2":
        return -sum((a - b) ** 2 for a, b in zip(q, k, strict=True))
    product = sum(a * b for a, b in zip(q, k, strict=True))
    return product / math.sqrt(len(q)) if kind == "scaled-dot" else product


def positions_read(t, *, size=None, document_start=0, window_start=None):
    """Positions that position t reads, the nearest first: `long` where size is given, `local` where
    a window is.
    """
    long = {j for j in range(t) if size is not None and t - size <= j and j >= document_start}
    local = {j for j in range(t) if window_start is not None and j >= window_start}
    return sorted(long | local, reverse=True)


def memory(keys, tokens, t, read, kind, theta):
    """(score, token) of each position that position t reads; scores after θ."""
    return [(theta * similarity(keys[t], keys[j], kind), tokens[j]) for j in read]


def _shifted(entries, *others):
    """Weights exp(s - m) of entries and of other scores, m the largest of all: no sum can overflow."""
    most = max([s for s, _ in entries] + [o for row in others for o in row])
    return [(math.exp(s - most), w) for s, w in entries], [
        [math.exp(o - most) for o in row] for row in others
    ]


def cache(entries, vocabulary):
    """p_cache of every token; None where the cache is empty."""
    if not entries:
        return None
    weights, _ = _shifted(entries)
    p = [0.0] * vocabulary
    for weight, token in weights:
        p[token] += weight
    total = sum(p)
    return [one / total for one in p]


def interpolated(p_lm, entries, lam):
    """(1 - λ) p_lm + λ p_cache; p_lm where the cache is empty."""
    p_cache = cache(entries, len(p_lm))
    return (
        p_lm
        if p_cache is None
        else [(1 - lam) * a + lam * b for a, b in zip(p_lm, p_cache, strict=True)]
    )


def joint(vocabulary_scores, entries, alpha):
    """One softmax over the vocabulary's scores and the entries' scores + α, entries summed by
    token.
    """
    raised = [(score + alpha, token) for score, token in entries]
    weights, (p,) = _shifted(raised, vocabulary_scores)
    for weight, token in weights:
        p[token] += weight
    total = sum(p)
    return [one / total for one in p]
