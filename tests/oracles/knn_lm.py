"""kNN-LM from stored keys, slowly: every distance, every exponential, one token at a time, float64."""

import numpy as np


def neighbours(keys, query, k, metric, excluded=()):
    """(rows, distances) of the k best rows, ties by the smaller row."""
    keys, query = keys.astype(np.float64), query.astype(np.float64)
    if metric == "l2":
        distances = ((keys - query) ** 2).sum(1)
        order = np.lexsort((np.arange(len(keys)), distances))
    else:
        distances = keys @ query
        order = np.lexsort((np.arange(len(keys)), -distances))
    order = [row for row in order if row not in excluded][:k]
    return np.array(order), distances[order]


def memory_probability(distances, values, target, temperature, metric):
    """p_mem(target) of the neighbours given."""
    scores = (-distances if metric == "l2" else distances) / temperature
    weights = np.exp(scores - scores.max())
    return weights[values == target].sum() / weights.sum()


def log_prob(p_lm, p_mem, lam):
    """log((1 - lam) p_lm + lam p_mem)."""
    return float(np.log((1 - lam) * p_lm + lam * p_mem))
