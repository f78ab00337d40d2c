"""The Memorizing Transformer over a stream of documents, without state: one position, one head, one
key at a time.
"""

from math import log
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.transformer_xl import norm

Weights = dict[str, Any]


class Shape(NamedTuple):
    """Heads, inputs of a segment (L), cached positions before it (M), entries before it (N), how
    many are read (k).
    """

    heads: int
    length: int
    memory: int
    entries: int
    neighbors: int


def bucket(distance: int, buckets: int, longest: int) -> int:
    """As T5 counts: half of the buckets hold one distance each, the others as many as their
    logarithm says.
    """
    half = buckets // 2
    if distance < half:
        return distance
    return min(
        buckets - 1, half + int(log(distance / half) / log(longest / half) * (buckets - half))
    )


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).sum())


def weighted(scores: list[float], values: list[np.ndarray]) -> np.ndarray:
    weights = np.exp(np.array(scores) - max(scores))
    return sum(a * v for a, v in zip(weights, values, strict=True)) / weights.sum()


def attended(
    w: Weights, x: np.ndarray, shape: Shape, documents: list[int], longest: int
) -> np.ndarray:
    """What attention adds to the residual stream, [T, d].

    Args:
        documents: of each position the first of its document, or 0 where memory does not end with
        them.
    """
    total, width = x.shape
    size, out = width // shape.heads, np.zeros_like(x)
    q, k, v = (w["attention.qkv.weight"].reshape(3, width, width)[n] for n in range(3))
    normed = [norm(row, w["attention_norm.weight"], w["attention_norm.bias"]) for row in x]
    for head in range(shape.heads):
        part = slice(head * size, (head + 1) * size)
        scale = min(np.exp(w["attention.log_scale"][head]), 100.0)
        keys, values = [unit(k[part] @ row) for row in normed], [v[part] @ row for row in normed]
        gate = 1 / (1 + np.exp(-w["attention.gate"][head]))
        bias = w["attention.distance.bias"][:, head]
        for i in range(total):
            begin = i // shape.length * shape.length
            query = scale * unit(q[part] @ normed[i])
            near = range(max(0, begin - shape.memory), i + 1)
            local = weighted(
                [query @ keys[j] + bias[bucket(i - j, len(bias), longest)] for j in near],
                [values[j] for j in near],
            )
            far = range(max(0, begin - shape.entries, documents[i]), begin)
            best = sorted(far, key=lambda j, at=query: (-(at @ keys[j]), j))[: shape.neighbors]
            out[i, part] = local
            if best:
                found = weighted([query @ keys[j] for j in best], [values[j] for j in best])
                out[i, part] = gate * found + (1 - gate) * local
    return out @ w["attention.out.weight"].T + w["attention.out.bias"]


def memorizing(
    embedded: np.ndarray,
    w: Weights,
    last: Weights,
    shape: Shape,
    documents: list[int],
    longest: int,
) -> np.ndarray:
    """Hidden states [T, d] of a model of one block, with relu."""
    x = embedded * embedded.shape[1] ** 0.5
    x = x + attended(w, x, shape, documents, longest)
    g = np.stack([norm(row, w["ffn_norm.weight"], w["ffn_norm.bias"]) for row in x])
    x = (
        x
        + np.maximum(g @ w["ffn.up.weight"].T + w["ffn.up.bias"], 0) @ w["ffn.down.weight"].T
        + w["ffn.down.bias"]
    )
    return np.stack([norm(row, last["weight"], last["bias"]) for row in x])
