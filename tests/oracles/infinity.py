"""The ∞-former over a stream of documents, without state: one position, one head, one basis
function at a time.
"""

from itertools import pairwise
from math import erf, exp, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from tests.oracles import transformer_xl
from tests.oracles.transformer_xl import norm

Weights = dict[str, Any]
Function = tuple[float, float]
"""A normal density: its mean and standard deviation."""


class Shape(NamedTuple):
    """Heads, inputs of a segment (L), cached positions before it (M), and settings of the signal."""

    heads: int
    length: int
    memory: int
    basis: int
    samples: int
    contraction: float
    sticky: bool
    widths: tuple[float, ...] = (0.05, 0.2)
    ridge: float = 0.5
    deviation: float = 0.1
    bins: int = 128


def normal(x: Any, mean: float, deviation: float) -> Any:
    return np.exp(-(((x - mean) / deviation) ** 2) / 2) / (sqrt(2 * pi) * deviation)


def functions(shape: Shape) -> list[Function]:
    number = shape.basis // len(shape.widths)
    return [(n / max(1, number - 1), width) for n in range(number) for width in shape.widths]


def value(signal: np.ndarray, t: float, shape: Shape) -> np.ndarray:
    """The signal at t, [d]."""
    return sum(normal(t, *psi) * row for psi, row in zip(functions(shape), signal, strict=True))


def fitted(vectors: np.ndarray, places: list[float], shape: Shape) -> np.ndarray:
    """Coefficients [N, d] of vectors [n, d] at places in [0, 1], with zeros at as many places
    outside.
    """
    aside = -(-len(places) // 2)
    outside = [-(n + 1) / (2 * aside) for n in range(aside)] + [
        1 + (n + 1) / (2 * aside) for n in range(aside)
    ]
    f = np.array([[normal(t, *psi) for t in [*places, *outside]] for psi in functions(shape)])
    all_vectors = np.concatenate((vectors, np.zeros((len(outside), vectors.shape[1]))))
    return np.linalg.inv(f @ f.T + shape.ridge * np.eye(len(f))) @ (f @ all_vectors)


def gated(w: Weights, x: np.ndarray) -> np.ndarray:
    """[n, d] with each vector times a number in (0, 1) a dimension, from its neighbours and itself."""
    width, zero = x.shape[1], np.zeros(x.shape[1])
    weight, bias = w["attention.writer.gate.taps.weight"], w["attention.writer.gate.taps.bias"]
    rows = []
    for n, own in enumerate(x):
        near = (x[n - 1] if n else zero, own, x[n + 1] if n + 1 < len(x) else zero)
        total = (
            sum(
                weight[:, tap * width : (tap + 1) * width] @ vector
                for tap, vector in enumerate(near)
            )
            + bias
        )
        rows.append(own / (1 + np.exp(-total)))
    return np.array(rows)


def places_of(looks: list[Function], shape: Shape) -> list[float]:
    """Where the old signal is sampled, after a segment of these normal densities: mean, standard
    deviation.
    """
    if not shape.sticky:
        return [(m + 1) / shape.samples for m in range(shape.samples)]
    edges = [n / shape.bins for n in range(shape.bins + 1)]
    mass = []
    for low, high in pairwise(edges):
        mass.append(
            sum(erf((high - m) / (s * sqrt(2))) - erf((low - m) / (s * sqrt(2))) for m, s in looks)
        )
    places = []
    for m in range(shape.samples):
        wanted, part = (m + 0.5) / shape.samples * sum(mass), 0
        while wanted > mass[part]:
            wanted, part = wanted - mass[part], part + 1
        places.append((part + wanted / mass[part]) / shape.bins)
    return places


def expectation(mean: float, deviation: float, psi: Function, points: int) -> float:
    """Of a basis function under a normal density, by quadrature where the function is not 0."""
    grid = np.linspace(psi[0] - 9 * psi[1], psi[0] + 9 * psi[1], points)
    return float((normal(grid, mean, deviation) * normal(grid, *psi)).sum() * (grid[1] - grid[0]))


class Read(NamedTuple):
    """What attention adds to the residual stream [T, d], what each segment reads, and the
    divergence of each query.
    """

    added: np.ndarray
    signals: list[np.ndarray]
    looks: list[list[Function]]
    """Of each position, by head."""
    divergence: list[float]
    """Of each position that sees a signal, the sum over heads."""


def attended(w: Weights, x: np.ndarray, shape: Shape, documents: list[int], points: int) -> Read:
    """`documents`: of each position the first of its document, or 0 where the signal does not end
    with them.
    """
    total, width = x.shape
    size = width // shape.heads
    q = w["attention.relative.qkv.weight"][:width]
    names = {
        name.replace("attention.relative.", "attention."): tensor for name, tensor in w.items()
    }
    local = transformer_xl.attended(
        names, x, transformer_xl.Shape(shape.heads, shape.length, shape.memory)
    )
    far, signal = np.zeros_like(x), np.zeros((shape.basis, width))
    signals, looks, divergence = [], [], []
    for begin in range(0, total, shape.length):
        left = begin - shape.memory - shape.length
        if documents[begin] > begin - shape.length:
            signal = np.zeros_like(signal)
        if left >= 0:
            parts = [
                x[n] if n >= documents[begin] else np.zeros(width)
                for n in range(left, left + shape.length)
            ]
            before = [look for heads in looks[-shape.length :] for look in heads]
            signal = written(w, signal, np.array(parts), before, shape)
        signals.append(signal)
        keys, values = (
            signal @ w[f"attention.reader.{name}.weight"].T for name in ("keys", "values")
        )
        for i in range(begin, min(begin + shape.length, total)):
            normed = norm(x[i], w["attention_norm.weight"], w["attention_norm.bias"])
            looks.append([])
            sees = signal.any() and documents[i] <= begin
            for head in range(shape.heads):
                part = slice(head * size, (head + 1) * size)
                scores = keys[:, part] @ (q[part] @ normed) / size**0.5
                place, spread = w["attention.reader.focus.weight"] @ scores
                mean, variance = 1 / (1 + exp(-place)), max(log(1 + exp(spread)), 1e-6)
                looks[-1].append((mean, sqrt(variance)))
                if sees:
                    r = [expectation(mean, sqrt(variance), psi, points) for psi in functions(shape)]
                    far[i, part] = values[:, part].T @ np.array(r)
            if sees:
                ratios = [(deviation / shape.deviation) ** 2 for _, deviation in looks[-1]]
                divergence.append(sum((ratio - log(ratio) - 1) / 2 for ratio in ratios))
    return Read(local + far @ w["attention.reader.out.weight"].T, signals, looks, divergence)


def written(
    w: Weights, signal: np.ndarray, new: np.ndarray, looks: list[Function], shape: Shape
) -> np.ndarray:
    """The signal with new vectors [L, d]."""
    number = len(new)
    if not signal.any():
        return fitted(gated(w, new), [(n + 1) / number for n in range(number)], shape)
    old = np.array([value(signal, t, shape) for t in places_of(looks, shape)])
    kept = shape.contraction
    places = [kept * (m + 1) / len(old) for m in range(len(old))]
    places += [kept + (1 - kept) * (n + 1) / number for n in range(number)]
    return fitted(np.concatenate((old, gated(w, new))), places, shape)


def infinity(
    embedded: np.ndarray,
    blocks: list[Weights],
    last: Weights,
    shape: Shape,
    documents: list[int],
    points: int = 20001,
) -> tuple[np.ndarray, list[Read]]:
    """Hidden states [T, d], and what each layer's attention read; with relu in the feed-forward
    layers.
    """
    x, reads = embedded * embedded.shape[1] ** 0.5, []
    for w in blocks:
        reads.append(attended(w, x, shape, documents, points))
        x = x + reads[-1].added
        g = np.stack([norm(row, w["ffn_norm.weight"], w["ffn_norm.bias"]) for row in x])
        x = (
            x
            + np.maximum(g @ w["ffn.up.weight"].T + w["ffn.up.bias"], 0) @ w["ffn.down.weight"].T
            + w["ffn.down.bias"]
        )
    return np.stack([norm(row, last["weight"], last["bias"]) for row in x]), reads
