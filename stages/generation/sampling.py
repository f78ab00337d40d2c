"""Sampling: the distribution from which a token is drawn, and the draw."""

import numpy as np


def probabilities(
    log_p: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """Distribution from which a token is drawn, float64 [V], summing to 1; ties go to the lower id.

    Args:
        log_p: log-probabilities of all tokens, natural log, [V]; -inf is allowed.
        temperature: divisor of the log-probabilities; 0 takes the most probable token.
        top_k: keep the k most probable tokens.
        top_p: of these, keep the fewest whose probabilities reach p in sum.

    >>> probabilities(np.log([0.5, 0.3, 0.2]), top_p=0.7).round(3).tolist()  # two hold 0.8
    [0.625, 0.375, 0.0]

    Source: top-p is the nucleus of Holtzman et al. 2020 (arXiv:1904.09751), section 3.1.
    """
    log_p = log_p.astype(np.float64)
    if temperature == 0:
        certain = np.zeros(len(log_p))
        certain[log_p.argmax()] = 1
        return certain
    with np.errstate(over="ignore"):
        weights = np.exp((log_p - log_p.max()) / temperature)
    if top_k is None and top_p is None:
        return weights / weights.sum()
    # stable: ties go to the lower id on every machine
    order = np.argsort(-weights, kind="stable")[:top_k]
    shares = weights[order] / weights[order].sum()
    if top_p is not None:
        order = order[: np.searchsorted(np.cumsum(shares), top_p) + 1]
    result = np.zeros(len(log_p))
    result[order] = weights[order] / weights[order].sum()
    return result


def draw(probability: np.ndarray, random: np.random.Generator) -> int:
    """Draw a token: the first whose cumulative probability exceeds a uniform random number.

    >>> [draw(np.array([0.0, 1.0, 0.0]), np.random.default_rng(seed)) for seed in (0, 1)]
    [1, 1]
    """
    cumulative = np.cumsum(probability)
    token = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
    # rounding may put the number past the last token with a probability above 0
    return min(token, int(np.flatnonzero(probability)[-1]))
