"""Drawing a token from a distribution."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; applied in this order."""

    temperature: float = 1.0
    """Log-probabilities are divided by it; 0 takes the likeliest token."""
    top_k: int | None = None
    """Only so many of the likeliest tokens are drawn from."""
    top_p: float | None = None
    """Only the fewest likeliest tokens that hold this probability together are drawn from."""


def probabilities(log_p: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Compute the distribution that a token is drawn from, float64 [V], summing to 1; of equals the lower id is kept
    first.

    Args:
        log_p: log-probabilities of all tokens, natural log, [V]; -inf is allowed.
    Source: top-p is the nucleus of Holtzman et al. 2020 (arXiv:1904.09751), section 3.1.
    """
    log_p = log_p.astype(np.float64)
    if sampling.temperature == 0:
        certain = np.zeros(len(log_p))
        certain[log_p.argmax()] = 1
        return certain
    with np.errstate(over="ignore"):
        weights = np.exp((log_p - log_p.max()) / sampling.temperature)
    if sampling.top_k is None and sampling.top_p is None:
        return weights / weights.sum()
    order = np.argsort(-weights, kind="stable")[: sampling.top_k]
    kept = weights[order] / weights[order].sum()
    if sampling.top_p is not None:
        order = order[: np.searchsorted(np.cumsum(kept), sampling.top_p) + 1]
    drawn = np.zeros(len(log_p))
    drawn[order] = weights[order] / weights[order].sum()
    return drawn


def draw(probability: np.ndarray, random: np.random.Generator) -> int:
    """A token by its probability: the first whose cumulative probability exceeds one uniform number."""
    cumulative = np.cumsum(probability)
    token = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
    return min(token, int(np.flatnonzero(probability)[-1]))
