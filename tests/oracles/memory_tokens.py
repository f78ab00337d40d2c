"""A Transformer with memory tokens, segment by segment: a boolean table says who sees whom, one
score at a time.
"""

import numpy as np

from tests.oracles.transformer_xl import Shape, Weights, distance, norm


def sees(kind: str, m: int, cached: int, own: int) -> np.ndarray:
    """Whether a row of [mem; own] sees a row of [mem; E; own], bool [m + own, m + cached + own]."""
    table = np.zeros((m + own, m + cached + own), bool)
    table[:m, : m + cached] = True
    table[m:, :m] = True
    table[m:, m : m + cached] = kind != "bottleneck"
    table[m:, m + cached :] = np.tri(own)
    return table


def weights(
    w: Weights, asking: np.ndarray, seen: np.ndarray, table: np.ndarray, m: int, heads: int
) -> np.ndarray:
    """Attention of normed rows, [heads, asking, seen]; the first m seen rows have no distance, nor
    have memory rows.
    """
    size, found = asking.shape[1] // heads, np.zeros((heads, len(asking), len(seen)))
    q, k, _ = w["qkv.weight"].reshape(3, asking.shape[1], -1)
    for head, i in np.ndindex(heads, len(asking)):
        part = slice(head * size, (head + 1) * size)
        scores = np.full(len(seen), -np.inf)
        for j in np.flatnonzero(table[i]):
            query, key = q[part] @ asking[i], k[part] @ seen[j]
            scores[j] = (query + w["content_bias"][head]) @ key
            if j >= m and "distance.weight" in w:
                r = w["distance.weight"][part] @ distance(
                    len(seen) - len(asking) + i - j, asking.shape[1]
                )
                scores[j] += (query + w["position_bias"][head]) @ r
        exp = np.exp((scores - scores.max()) / size**0.5)
        found[head, i] = exp / exp.sum()
    return found


def attended(
    w: Weights, asking: np.ndarray, seen: np.ndarray, table: np.ndarray, m: int, heads: int
) -> tuple[np.ndarray, np.ndarray]:
    """The residual stream after attention, and its weights."""
    normed = [
        np.stack([norm(row, w["attention_norm.weight"], w["attention_norm.bias"]) for row in rows])
        for rows in (asking, seen)
    ]
    by_head = weights(w, *normed, table, m, heads)
    v = (normed[1] @ w["qkv.weight"][2 * asking.shape[1] :].T).reshape(len(seen), heads, -1)
    out = np.einsum("hij,jhe->ihe", by_head, v).reshape(asking.shape)
    return asking + out @ w["out.weight"].T + w["out.bias"], by_head


def fed_forward(w: Weights, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    g = np.stack([norm(row, w["ffn_norm.weight"], w["ffn_norm.bias"]) for row in x])
    up = np.maximum(g @ w["ffn.up.weight"].T + w["ffn.up.bias"], 0)
    return x + up @ w["ffn.down.weight"].T + w["ffn.down.bias"], g


def memory_transformer(
    embedded: np.ndarray,
    begun: np.ndarray,
    blocks: list[dict[str, Weights]],
    last: Weights,
    shape: Shape,
    kind: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[np.ndarray]]]:
    """Hidden states and inputs of the last feed-forward layer [T, d], each block's inputs [blocks,
    T, d], and attention of each segment's blocks: of memory rows (a block that nothing reads has
    none), then of tokens.

    Args:
        embedded: [T, d]. begun: memory tokens, [m, d]. blocks: weights of `tokens` and of `memory`
        rows.
        kind: shared, controller or bottleneck.
    """
    total, width = embedded.shape
    m, inputs, f, g = len(begun), np.zeros((len(blocks), total, width)), [], []
    looks: list[list[np.ndarray]] = []
    for start in range(0, total, shape.length):
        stop, first = min(start + shape.length, total), max(0, start - shape.memory)
        x, memory = embedded[start:stop] * width**0.5, begun * width**0.5
        for number, w in enumerate(blocks):
            inputs[number, start:stop] = x
            cached = inputs[number, first:start]
            table = sees(kind, m, len(cached), len(x))
            written, by_memory = memory, np.zeros((shape.heads, 0, 0))
            if m and (kind == "bottleneck" or number + 1 < len(blocks)):
                seen = np.concatenate((memory, cached))
                content = {
                    name: weight
                    for name, weight in w["memory"].items()
                    if name != "distance.weight"
                }
                written, by_memory = attended(content, memory, seen, table, m, shape.heads)
                written, _ = fed_forward(w["memory"], written)
            read = written if kind == "bottleneck" else memory
            x, by_token = attended(
                w["tokens"], x, np.concatenate((read, cached, x)), table[m:], m, shape.heads
            )
            x, ffn_input = fed_forward(w["tokens"], x)
            memory = written
            looks.append([by_memory, by_token])
        f += [norm(row, last["weight"], last["bias"]) for row in x]
        g += list(ffn_input)
    return np.stack(f), np.stack(g), inputs, looks
