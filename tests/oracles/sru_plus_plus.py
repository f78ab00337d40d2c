"""SRU++ over a whole stream: one position, one head and one number of a cell at a time."""

import numpy as np

from tests.oracles.lstm import sigmoid
from tests.oracles.transformer_xl import Shape, Weights, norm


def cells(u: np.ndarray, z: np.ndarray, v: np.ndarray, before: np.ndarray) -> np.ndarray:
    """c [L, d] of u, z [L, d], v [d] and c_0 [d]."""
    c = np.zeros((len(u) + 1, len(v)))
    c[0] = before
    for t in range(len(u)):
        for i in range(len(v)):
            f = sigmoid(z[t, i] + v[i] * c[t, i])
            c[t + 1, i] = f * c[t, i] + (1 - f) * u[t, i]
    return c[1:]


def terms(w: Weights, x: np.ndarray, shape: Shape) -> np.ndarray:
    """What the recurrence of a layer reads, [T, 3 d]."""
    z = x @ w["projection.down.weight"].T
    mixed = z.copy()
    if "projection.alpha" in w:
        width = z.shape[1]
        size = width // shape.heads
        k, v = (
            w["projection.keys_values.weight"][:width],
            w["projection.keys_values.weight"][width:],
        )
        for i in range(len(x)):
            first = max(0, i // shape.length * shape.length - shape.memory)
            for head in range(shape.heads):
                part = slice(head * size, (head + 1) * size)
                scores = (
                    np.array([z[i, part] @ (k[part] @ z[j]) for j in range(first, i + 1)])
                    / size**0.5
                )
                weights = np.exp(scores - scores.max())
                read = sum(
                    a * (v[part] @ z[j]) for a, j in zip(weights, range(first, i + 1), strict=True)
                )
                mixed[i, part] += w["projection.alpha"][0] * read / weights.sum()
    normed = np.stack(
        [norm(row, w["projection.norm.weight"], w["projection.norm.bias"]) for row in mixed]
    )
    projected: np.ndarray = normed @ w["projection.out.weight"].T
    return projected


def sru_plus_plus(
    embedded: np.ndarray, layers: list[Weights], shape: Shape
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden states [T, d], each layer's inputs [layers, T, d], and its cell after the last
    position [layers, d].
    """
    x, inputs, last = embedded, [], []
    for w in layers:
        inputs.append(x)
        u, z, highway = np.split(terms(w, x, shape), 3, 1)
        c = cells(u, z + w["forget_bias"], w["carry_forget"], np.zeros(x.shape[1]))
        earlier = np.concatenate((np.zeros((1, x.shape[1])), c[:-1]))
        r = sigmoid(highway + w["highway_bias"] + w["carry_highway"] * earlier)
        x = r * c + (1 - r) * x
        last.append(c[-1])
    return x, np.stack(inputs), np.stack(last)
