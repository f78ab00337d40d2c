"""MemSizer by loops over positions, what they wrote, and heads; no sum is kept."""

import numpy as np

from tests.oracles.product_keys import Weights, layer_norm


def softmax(scores: np.ndarray) -> np.ndarray:
    exponents = np.exp(scores - scores.max())
    normalized: np.ndarray = exponents / exponents.sum()
    return normalized


def memsizer(x: np.ndarray, w: Weights, heads: int) -> np.ndarray:
    """Outputs [T, d] of a window [T, d]."""

    def linear(name: str, at: np.ndarray) -> np.ndarray:
        return w[f"{name}.weight"] @ at + w[f"{name}.bias"]

    def normed(name: str, at: np.ndarray) -> np.ndarray:
        return layer_norm(linear(name, at), w[f"{name}_norm.weight"], w[f"{name}_norm.bias"])

    out = np.zeros_like(x)
    for t, at in enumerate(x):
        for scores in linear("query", at).reshape(heads, -1):
            for slot, weight in enumerate(softmax(scores)):
                for before in x[: t + 1]:
                    out[t] += (
                        weight * normed("write", before)[slot] * normed("value", before) / heads
                    )
        out[t] /= np.sqrt(t + 1)
    return out
