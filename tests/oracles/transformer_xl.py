"""Transformer-XL over a whole stream: one position, one head and one key at a time; and dense, for
gradients.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Any]


class Shape(NamedTuple):
    """Heads, inputs of a segment (L) and positions before it that are attended to (M)."""

    heads: int
    length: int
    memory: int


def distance(number: int, width: int) -> np.ndarray:
    """Sinusoids of a distance, [d]: sines, then cosines, of rates from 1 to 1/10,000."""
    angles = number * 10_000.0 ** (-np.arange(width // 2) / (width // 2 - 1))
    return np.concatenate((np.sin(angles), np.cos(angles)))


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias


def attended(w: Weights, x: np.ndarray, shape: Shape) -> np.ndarray:
    """What attention adds to the residual stream, [T, d]."""
    total, width = x.shape
    size = width // shape.heads
    out = np.zeros_like(x)
    normed = [norm(row, w["attention_norm.weight"], w["attention_norm.bias"]) for row in x]
    q, k, v = (w["attention.qkv.weight"].reshape(3, width, width)[n] for n in range(3))
    for i in range(total):
        first = max(0, i // shape.length * shape.length - shape.memory)
        for head in range(shape.heads):
            part = slice(head * size, (head + 1) * size)
            query = q[part] @ normed[i]
            u, p = w["attention.content_bias"][head], w["attention.position_bias"][head]
            scores = []
            for j in range(first, i + 1):
                r = w["attention.distance.weight"][part] @ distance(i - j, width)
                scores.append(((query + u) @ (k[part] @ normed[j]) + (query + p) @ r) / size**0.5)
            weights = np.exp(np.array(scores) - max(scores))
            read = sum(
                a * (v[part] @ normed[j]) for a, j in zip(weights, range(first, i + 1), strict=True)
            )
            out[i, part] = read / weights.sum()
    return out @ w["attention.out.weight"].T + w["attention.out.bias"]


def transformer_xl(
    embedded: np.ndarray, blocks: list[Weights], last: Weights, shape: Shape
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden states and inputs of the last feed-forward layer [T, d], and each layer's inputs
    [layers, T, d].

    Args:
        embedded: [T, d]. blocks: the weights of each layer, with relu. last: those of the last
        layer norm.
    """
    x = embedded * embedded.shape[1] ** 0.5
    inputs = []
    for w in blocks:
        inputs.append(x)
        x = x + attended(w, x, shape)
        g = np.stack([norm(row, w["ffn_norm.weight"], w["ffn_norm.bias"]) for row in x])
        up = np.maximum(g @ w["ffn.up.weight"].T + w["ffn.up.bias"], 0)
        x = x + up @ w["ffn.down.weight"].T + w["ffn.down.bias"]
    return np.stack([norm(row, last["weight"], last["bias"]) for row in x]), g, np.stack(inputs)


def dense(embedded: Tensor, blocks: list[Weights], last: Weights, shape: Shape) -> Tensor:
    """Hidden states [T, d], differentiable; what lies before a position's segment is constant."""
    total, width = embedded.shape
    place = torch.arange(total)
    begin = place // shape.length * shape.length
    constant = place[None] < begin[:, None]
    seen = (place[None] <= place[:, None]) & (place[None] >= begin[:, None] - shape.memory)
    vectors = torch.tensor(np.stack([distance(number, width) for number in range(total)]))
    x = embedded * width**0.5
    for w in blocks:
        normed = F.layer_norm(x, (width,), w["attention_norm.weight"], w["attention_norm.bias"])
        still = F.layer_norm(
            x.detach(), (width,), w["attention_norm.weight"], w["attention_norm.bias"]
        )
        heads = [
            (t @ w["attention.qkv.weight"].T).view(total, 3, shape.heads, -1).unbind(1)
            for t in (normed, still)
        ]
        (q, k, v), (_, k0, v0) = heads
        k, v = (
            torch.where(constant[:, :, None, None], old, new) for old, new in ((k0, k), (v0, v))
        )
        r = (vectors @ w["attention.distance.weight"].T).view(total, shape.heads, -1)
        r = r[(place[:, None] - place[None]).clamp(min=0)]
        content = torch.einsum("ihe,ijhe->hij", q + w["attention.content_bias"], k)
        position = torch.einsum("ihe,ijhe->hij", q + w["attention.position_bias"], r)
        scores = ((content + position) / q.shape[2] ** 0.5).masked_fill(~seen, -torch.inf)
        read = torch.einsum("hij,ijhe->ihe", scores.softmax(-1), v).flatten(1)
        x = x + read @ w["attention.out.weight"].T + w["attention.out.bias"]
        g = F.layer_norm(x, (width,), w["ffn_norm.weight"], w["ffn_norm.bias"])
        x = (
            x
            + F.relu(g @ w["ffn.up.weight"].T + w["ffn.up.bias"]) @ w["ffn.down.weight"].T
            + w["ffn.down.bias"]
        )
    return F.layer_norm(x, (width,), last["weight"], last["bias"])
