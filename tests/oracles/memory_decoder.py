"""Memory Decoder, slowly: dense distributions over the vocabulary, one position at a time, float64."""

import math

import numpy as np


def neighbor_distribution(tokens, scores, temperature, vocabulary):
    """q [V] of one position: each present neighbour's exponential, added to its token; None: no
    neighbour.
    """
    present = [(int(t), float(s)) for t, s in zip(tokens, scores, strict=True) if t >= 0]
    if not present:
        return None
    best = max(score for _, score in present)
    q = np.zeros(vocabulary)
    for token, score in present:
        q[token] += math.exp((score - best) / temperature)
    return q / q.sum()


def loss(log_probs, targets, distributions, alpha):
    """Mean of α KL(q ‖ p) - (1 - α) log p(target); positions without q have α = 0.

    Source: Cao et al. 2025 (Memory Decoder, arXiv:2508.09874).
    """
    terms = []
    for log_p, target, q in zip(log_probs, targets, distributions, strict=True):
        weight = 0.0 if q is None else alpha
        divergence = 0.0
        if q is not None:
            for token, share in enumerate(q):
                if share > 0:
                    divergence += share * (math.log(share) - float(log_p[token]))
        terms.append(weight * divergence - (1 - weight) * float(log_p[target]))
    return sum(terms) / len(terms)
