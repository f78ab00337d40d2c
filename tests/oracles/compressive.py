"""The Compressive Transformer over a whole stream, without state: one position, one head, one key
at a time.
"""

from typing import Any, NamedTuple

import numpy as np

from tests.oracles.transformer_xl import distance, norm

Weights = dict[str, Any]


class Shape(NamedTuple):
    """Heads, inputs of a segment (L), cached positions before it (M), slots before these (C), and
    their rate.
    """

    heads: int
    length: int
    memory: int
    slots: int
    rate: int


def slot(x: np.ndarray, number: int, w: Weights, shape: Shape, compression: str) -> np.ndarray:
    """Slot `number` of a layer with inputs x [T, d]."""
    group = x[number * shape.rate : (number + 1) * shape.rate]
    if compression == "conv":
        return (
            w["attention.compress.taps.weight"] @ group.reshape(-1)
            + w["attention.compress.taps.bias"]
        )
    return group.mean(0) if compression == "mean" else group.max(0)


def slots_before(segment: int, shape: Shape) -> range:
    """Those that a segment attends to: made of positions more than M before it, the latest C."""
    made = max(0, (segment * shape.length - shape.memory) // shape.rate)
    return range(max(0, made - shape.slots), made)


def attended(w: Weights, x: np.ndarray, shape: Shape, compression: str) -> np.ndarray:
    """What attention adds to the residual stream, [T, d]."""
    total, width = x.shape
    size, out = width // shape.heads, np.zeros_like(x)
    q, k, v = (w["attention.relative.qkv.weight"].reshape(3, width, width)[n] for n in range(3))
    for i in range(total):
        segment = i // shape.length
        first = max(0, segment * shape.length - shape.memory)
        seen = [slot(x, n, w, shape, compression) for n in slots_before(segment, shape)] + list(
            x[first : i + 1]
        )
        normed = [norm(row, w["attention_norm.weight"], w["attention_norm.bias"]) for row in seen]
        for head in range(shape.heads):
            part = slice(head * size, (head + 1) * size)
            query = q[part] @ normed[-1]
            u, p = (
                w["attention.relative.content_bias"][head],
                w["attention.relative.position_bias"][head],
            )
            scores = []
            for j, key in enumerate(normed):
                r = w["attention.relative.distance.weight"][part] @ distance(
                    len(normed) - 1 - j, width
                )
                scores.append(((query + u) @ (k[part] @ key) + (query + p) @ r) / size**0.5)
            weights = np.exp(np.array(scores) - max(scores))
            out[i, part] = (
                sum(a * (v[part] @ key) for a, key in zip(weights, normed, strict=True))
                / weights.sum()
            )
    return out @ w["attention.relative.out.weight"].T + w["attention.relative.out.bias"]


def compressive(
    embedded: np.ndarray, blocks: list[Weights], last: Weights, shape: Shape, compression: str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Hidden states [T, d], and each layer's inputs [T, d]; with relu in the feed-forward layers."""
    x, inputs = embedded * embedded.shape[1] ** 0.5, []
    for w in blocks:
        inputs.append(x)
        x = x + attended(w, x, shape, compression)
        g = np.stack([norm(row, w["ffn_norm.weight"], w["ffn_norm.bias"]) for row in x])
        x = (
            x
            + np.maximum(g @ w["ffn.up.weight"].T + w["ffn.up.bias"], 0) @ w["ffn.down.weight"].T
            + w["ffn.down.bias"]
        )
    return np.stack([norm(row, last["weight"], last["bias"]) for row in x]), inputs


def reconstruction_loss(
    w: Weights, x: np.ndarray, segment: int, shape: Shape, compression: str
) -> float:
    """Of one layer with inputs x [T, d], when a segment ends."""
    before, after = (max(0, (segment + n) * shape.length - shape.memory) for n in (0, 1))
    size, width = x.shape[1] // shape.heads, x.shape[1]
    q, k, v = (w["attention.relative.qkv.weight"].reshape(3, width, width)[n] for n in range(3))

    def normed(rows: Any) -> list[np.ndarray]:
        return [norm(row, w["attention_norm.weight"], w["attention_norm.bias"]) for row in rows]

    old = normed(x[before:after])
    new = normed(
        slot(x, n, w, shape, compression) for n in range(before // shape.rate, after // shape.rate)
    )
    squares = []
    for own in normed(x[segment * shape.length : (segment + 1) * shape.length]):
        for head in range(shape.heads):
            part = slice(head * size, (head + 1) * size)
            reads = []
            for keys in (old, new):
                scores = np.array([q[part] @ own @ (k[part] @ key) / size**0.5 for key in keys])
                weights = np.exp(scores - scores.max())
                reads.append(
                    sum(a * (v[part] @ key) for a, key in zip(weights, keys, strict=True))
                    / weights.sum()
                )
            squares += ((reads[0] - reads[1]) ** 2).tolist()
    return float(np.mean(squares))
