"""Slow references of SPALM's gate: one position and one neighbour at a time, in float64.

Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
"""

import math

import numpy as np
import torch


def aggregated(hidden, neighbors, embeddings, scale=1.0):
    """m: Σ_k softmax_k(y_k·h) scale y_k, [N, d]; 0 where every neighbour is -1."""
    memory = np.zeros(hidden.shape)
    for t, tokens in enumerate(neighbors):
        near = [embeddings[token].astype(np.float64) for token in tokens if token >= 0]
        scores = [sum(float(a) * float(b) for a, b in zip(y, hidden[t], strict=True)) for y in near]
        log_sums = [math.exp(score - max(scores)) for score in scores]
        for mass, y in zip(log_sums, near, strict=True):
            memory[t] += mass / sum(log_sums) * scale * y
    return memory


def gates(hidden, neighbors, weight):
    """g: σ(V h), [N, rows of V]; 1 where every neighbour is -1."""
    values = np.ones((len(hidden), len(weight)))
    for t, tokens in enumerate(neighbors):
        if any(token >= 0 for token in tokens):
            for i, row in enumerate(weight):
                values[t, i] = 1 / (
                    1
                    + math.exp(
                        -sum(float(a) * float(b) for a, b in zip(row, hidden[t], strict=True))
                    )
                )
    return values


def gated(hidden, neighbors, embeddings, weight, scale=1.0):
    """z: (1 - g) ⊙ m + g ⊙ h, [N, d]."""
    gate = gates(hidden, neighbors, weight)
    return (1 - gate) * aggregated(hidden, neighbors, embeddings, scale) + gate * hidden


def differentiable(hidden, neighbors, embed, weight, scale=1.0):
    """z by autograd alone: `embed` makes embeddings [n, d] of token ids [n]."""
    rows = []
    for h, tokens in zip(hidden, neighbors.tolist(), strict=True):
        near = [embed(torch.tensor([token]))[0] for token in tokens if token >= 0]
        if not near:
            rows.append(h)
            continue
        weights = torch.stack([y @ h for y in near]).softmax(0)
        memory = scale * sum(w * y for w, y in zip(weights, near, strict=True))
        gate = torch.sigmoid(weight @ h)
        rows.append((1 - gate) * memory + gate * h)
    return torch.stack(rows)
