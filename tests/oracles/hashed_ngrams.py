"""Hashed n-grams of a whole stream, position by position, in Python's own integers; nothing is
carried.
"""

import math
from collections.abc import Sequence

import numpy as np

Weights = dict[str, np.ndarray]


def primes_from(start: int, number: int) -> list[int]:
    found: list[int] = []
    candidate = max(2, start)
    while len(found) < number:
        if not any(candidate % divisor == 0 for divisor in range(2, candidate)):
            found.append(candidate)
        candidate += 1
    return found


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean() + 1e-6) * weight


def own(starts: Sequence[int], place: int, lag: int) -> bool:
    """Whether the position `lag` before a place lies in its document, of those that start there."""
    return place - lag >= max(start for start in starts if start <= place)


def rows_of(tokens: Sequence[int], place: int, starts: Sequence[int], tables, factors) -> list[int]:
    """Rows of the table that a position reads; tables: (order, sizes of the heads)."""
    rows, first = [], 0
    for order, sizes in tables:
        mixed = 0
        for lag in range(order):
            token = tokens[place - lag] if own(starts, place, lag) else -1
            mixed ^= (token + 1) * factors[order][lag]
        for size in sizes:
            rows.append(first + mixed % size)
            first += size
    return rows


def hashed_ngrams(
    x: np.ndarray,
    tokens: Sequence[int],
    starts: Sequence[int],
    w: Weights,
    tables,
    factors,
    gate: str = "plain",
):
    """The next residual stream [T, d] of a stream [T, d].

    Args:
        starts: where documents begin, 0 first.
        gate: `plain`, or `signed-root`.
    """
    apart = max(order for order, _ in tables)
    gated, normed, out = [], [], []
    for place, at in enumerate(x):
        entry = np.concatenate(
            [w["table"][row] for row in rows_of(tokens, place, starts, tables, factors)]
        )
        key, value = w["gate.key.weight"] @ entry, w["value.weight"] @ entry
        score = (
            rms_norm(at, w["gate.stream_norm.weight"])
            @ rms_norm(key, w["gate.key_norm.weight"])
            / np.sqrt(len(at))
        )
        if gate == "signed-root":
            score = math.copysign(math.sqrt(abs(score)), score)
        gated.append(value / (1 + np.exp(-score)))
        normed.append(rms_norm(gated[-1], w["value_norm.weight"]))
        summed = sum(
            normed[place - tap * apart] * weight
            for tap, weight in enumerate(w["taps"])
            if own(starts, place, tap * apart)
        )
        out.append(at + gated[-1] + summed / (1 + np.exp(-summed)))
    return np.array(out)
