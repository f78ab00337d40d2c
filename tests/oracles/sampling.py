"""What tokens are drawn from, slowly: sorted lists of Python floats."""

import math


def probabilities(log_p, temperature, top_k, top_p):
    """{token: probability}; of equals the lower id comes first."""
    ranked = sorted(range(len(log_p)), key=lambda token: (-log_p[token], token))
    if temperature == 0:
        return {ranked[0]: 1.0}
    best = log_p[ranked[0]]
    weights = {token: math.exp((log_p[token] - best) / temperature) for token in ranked[:top_k]}
    total = sum(weights.values())
    kept, sum_kept = [], 0.0
    for token, weight in weights.items():
        kept.append(token)
        sum_kept += weight / total
        if top_p is not None and sum_kept >= top_p:
            break
    left = sum(weights[token] for token in kept)
    return {token: weights[token] / left for token in kept}
