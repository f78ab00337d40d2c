"""Adaptive k in numpy, a position and a number of neighbours at a time."""

import numpy as np


def weights(network: dict, features: list[float]) -> np.ndarray:
    """w_0 … w_C of one context, from the record of a network."""
    x = [(f - m) / s for f, m, s in zip(features, network["mean"], network["spread"], strict=True)]
    hidden = [
        np.tanh(np.dot(row, x) + b)
        for row, b in zip(network["inner"], network["bias"], strict=True)
    ]
    logits = np.array(
        [
            np.dot(row, hidden) + c
            for row, c in zip(network["outer"], network["offset"], strict=True)
        ]
    )
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def probability(
    p_lm: float, scores: np.ndarray, holds: np.ndarray, numbers: list[int], shares: np.ndarray
) -> float:
    """p of a target.

    Args:
        scores: s/τ of its context's neighbours, best first.
        holds: which of these hold the target, bool.
    """
    found = shares[0] * p_lm
    for number, share in zip(numbers, shares[1:], strict=True):
        exponentials = np.exp(scores[:number] - scores[0])
        found += share * exponentials[holds[:number]].sum() / exponentials.sum()
    return float(found)
