"""The equations of the encoder-decoder, one sentence and one position at a time, in float64 numpy."""

from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def weights_of(model: Any) -> Weights:
    return {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}


def norm(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean()
    return (
        weights[f"{name}.weight"] * centred / np.sqrt((centred**2).mean() + 1e-5)
        + weights[f"{name}.bias"]
    )


def linear(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]


def sinusoid(position: int, width: int) -> np.ndarray:
    half = width // 2
    angles = [position * 10_000 ** (-i / max(1, half - 1)) for i in range(half)]
    return np.array([*np.sin(angles), *np.cos(angles)])


def attend(
    weights: Weights, name: str, query_of: np.ndarray, read: list[np.ndarray], heads: int
) -> np.ndarray:
    width, size = len(query_of), len(query_of) // heads
    query = linear(weights, f"{name}.query", query_of)
    both = [linear(weights, f"{name}.read", one) for one in read]
    out = np.zeros(width)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = np.array([query[part] @ pair[:width][part] for pair in both]) / np.sqrt(size)
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        out[part] = sum(
            share * pair[width:][part] for share, pair in zip(shares, both, strict=True)
        )
    return linear(weights, f"{name}.out", out)


def feed_forward(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return linear(weights, f"{name}.down", np.maximum(linear(weights, f"{name}.up", x), 0))


def encode(weights: Weights, source: list[int], layers: int, heads: int) -> list[np.ndarray]:
    x = _placed(weights, source)
    for number in range(layers):
        at = f"backbone.encoder.{number}"
        normed = [norm(weights, f"{at}.attention_norm", one) for one in x]
        x = [
            one + attend(weights, f"{at}.attention", own, normed, heads)
            for one, own in zip(x, normed, strict=True)
        ]
        x = [
            one + feed_forward(weights, f"{at}.ffn", norm(weights, f"{at}.ffn_norm", one))
            for one in x
        ]
    return [norm(weights, "backbone.encoder_norm", one) for one in x]


def decode(
    weights: Weights,
    inputs: list[int],
    source: list[int],
    encoder_layers: int,
    layers: int,
    heads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(f, g) of a target's inputs that are read with a source, [L, d] each."""
    encoded = encode(weights, source, encoder_layers, heads)
    x = _placed(weights, inputs)
    keys: list[np.ndarray] = []
    for number in range(layers):
        at = f"backbone.blocks.{number}"
        normed = [norm(weights, f"{at}.attention_norm", one) for one in x]
        x = [
            one + attend(weights, f"{at}.attention", normed[i], normed[: i + 1], heads)
            for i, one in enumerate(x)
        ]
        asked = [norm(weights, f"{at}.source_norm", one) for one in x]
        x = [
            one + attend(weights, f"{at}.source_attention", ask, encoded, heads)
            for one, ask in zip(x, asked, strict=True)
        ]
        keys = [norm(weights, f"{at}.ffn_norm", one) for one in x]
        x = [
            one + feed_forward(weights, f"{at}.ffn", key) for one, key in zip(x, keys, strict=True)
        ]
    return np.array([norm(weights, "backbone.norm", one) for one in x]), np.array(keys)


def _placed(weights: Weights, tokens: list[int]) -> list[np.ndarray]:
    table = weights["vocabulary.embedding"]
    width = table.shape[1]
    return [
        table[token] * np.sqrt(width) + sinusoid(place, width) for place, token in enumerate(tokens)
    ]


def log_probs(weights: Weights, hidden: np.ndarray) -> np.ndarray:
    scores = hidden @ weights["vocabulary.embedding"].T
    shifted = scores - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
