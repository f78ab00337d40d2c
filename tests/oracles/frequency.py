"""Slow, obvious twin of perplexity by frequency: one token at a time. Zhong et al. 2022 (TRIME),
Table 14.
"""

import math
from collections.abc import Sequence

RANGES = [(10_001, None), (1_001, 10_000), (101, 1_000), (11, 100), (1, 10), (0, 0)]


def place(count: int) -> int:
    """Which range a count lies in."""
    (found,) = [
        n
        for n, (least, most) in enumerate(RANGES)
        if count >= least and (most is None or count <= most)
    ]
    return found


def by_frequency(
    counted: Sequence[int], targets: Sequence[int], log_p: Sequence[float]
) -> list[tuple[int, int, float]]:
    """(range, tokens, mean nats a token) of every range that holds a target; types are counted in
    `counted`.
    """
    held: dict[int, list[float]] = {}
    for target, one in zip(targets, log_p, strict=True):
        held.setdefault(place(list(counted).count(target)), []).append(-one)
    return [(n, len(values), math.fsum(values) / len(values)) for n, values in sorted(held.items())]
