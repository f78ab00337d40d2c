"""Slots of Memformer, one slot, one head and one row at a time."""

import numpy as np

from tests.oracles.transformer_xl import Weights


def written(
    w: Weights, memory: np.ndarray, read: np.ndarray, heads: int, temperature: float
) -> np.ndarray:
    """The slots [k, d] after rows [S, d] were read, by biased memory normalization."""
    slots, width = memory.shape
    size, after = width // heads, np.zeros_like(memory)
    for i in range(slots):
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            query = (w["query.weight"] @ memory[i])[part]
            scores = [query @ (w["key.weight"] @ memory[i])[part]]
            scores += [query @ (w["key.weight"] @ row)[part] for row in read]
            exp = np.exp((np.array(scores) - max(scores)) / (size**0.5 * temperature))
            values = [memory[i, part], *((w["value.weight"] @ row)[part] for row in read)]
            after[i, part] = sum(
                a * value for a, value in zip(exp / exp.sum(), values, strict=True)
            )
        after[i] += w["bias"][i]
        after[i] /= np.sqrt((after[i] ** 2).sum())
    return after
