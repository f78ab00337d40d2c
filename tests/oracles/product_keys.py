"""Product-key memory: every slot of every head, one position at a time; and dense, for gradients."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, np.ndarray]


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias


def all_scores(query: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Scores of all n² slots, slot a·n + b made of keys a and b; keys [n, d_q / 2]."""
    half = len(query) // 2
    return np.array([query[:half] @ a + query[half:] @ b for a in first for b in second])


def read(
    scores: np.ndarray, values: np.ndarray, k: int
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """The k best slots, their weights, and what is read."""
    best = sorted(range(len(scores)), key=lambda slot: (-scores[slot], slot))[:k]
    weights = np.exp(scores[best] - scores[best].max())
    weights /= weights.sum()
    return best, weights, sum(w * values[slot] for w, slot in zip(weights, best, strict=True))


def product_keys(x: np.ndarray, w: Weights, k: int) -> np.ndarray:
    """What the layer adds at positions [N, d], with the norm of each query by itself."""
    heads = w["lookup.keys"].shape[1]
    out = np.zeros_like(x)
    for row, at in enumerate(x):
        queries = (w["lookup.query.weight"] @ at + w["lookup.query.bias"]).reshape(heads, -1)
        for head, query in enumerate(queries):
            normed = layer_norm(query, w["lookup.norm.weight"], w["lookup.norm.bias"])
            out[row] += read(all_scores(normed, *w["lookup.keys"][:, head]), w["values"], k)[2]
    return out


def dense(x: Tensor, w: dict[str, Tensor], k: int) -> Tensor:
    """The same of [N, d] with batch norm as in training, differentiable: all n² scores, all but the
    best k masked.
    """
    _, heads, n, _ = w["lookup.keys"].shape
    queries = F.linear(x, w["lookup.query.weight"], w["lookup.query.bias"])
    centred = (queries - queries.mean(0)) / (queries.var(0, unbiased=False) + 1e-5).sqrt()
    q = (centred * w["lookup.norm.weight"] + w["lookup.norm.bias"]).view(len(x), heads, 2, -1)
    first, second = (
        torch.einsum("rhe,hne->rhn", q[:, :, half], w["lookup.keys"][half]) for half in (0, 1)
    )
    scores = (first[..., None] + second[..., None, :]).reshape(len(x), heads, n * n)
    worst = scores.detach().sort(-1, descending=True).values[..., k - 1 : k]
    return (scores.masked_fill(scores < worst, -torch.inf).softmax(-1) @ w["values"]).sum(1)
