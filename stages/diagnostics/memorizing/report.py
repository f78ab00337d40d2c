"""Figures of memorizing attention, from the records of shards. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Records = Sequence[Mapping[str, Any]]
"""Records of `stages.diagnostics.memorizing.probe.SearchWatch`, one for each range of a split, in order."""

AGES = 32
"""Groups of ages: from 2^g to less than 2^(g + 1) positions."""
ANGLES = 40
"""Parts into which cosines from -1 to 1 are divided."""


def search_figures(records: Records, blocks: Sequence[int], gates: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The `memorizing` of `metrics.json`.

    Args:
        blocks: that have such attention, counted from 1, in the order of a record's `ages`, `cosines`, `scores` and
            `found`.
        gates: of the heads of each.
    """
    tokens = sum(record["tokens"] for record in records)
    names = "ages", "cosines", "scores", "found"
    ages, cosines, scores, found = (np.sum([record[name] for record in records], axis=0) for name in names)
    return {
        "blocks": [
            {
                "block": block,
                "gates": list(its_gates),
                "found": float(number) / (tokens * len(its_gates)),
                "score": float(score) / float(number) if number else None,
                "by_age": _shares(weights),
                "by_cosine": (counts / number).tolist() if number else [],
            }
            for block, its_gates, weights, counts, score, number in zip(
                blocks, gates, ages, cosines, scores, found, strict=True
            )
        ]
    }


def _shares(weights: np.ndarray) -> list[list[float]]:
    """Pairs of an age and the share of all weight that entries of this age up to its double have; none of no weight."""
    if not weights.any():
        return []
    last = int(np.flatnonzero(weights).max())
    return [[2**group, float(weights[group] / weights.sum())] for group in range(last + 1)]


def summary(figures: Mapping[str, Any]) -> str:
    """`memorizing: block 3 finds entries for 98.0%, half of their weight 512 or more back; gates 0.12 … 0.71`."""
    return f"memorizing: {'; '.join(map(_line, figures['blocks']))}"


def _line(one: Mapping[str, Any]) -> str:
    gates = f"gates {min(one['gates']):.2f} … {max(one['gates']):.2f}"
    age = _median(one["by_age"])
    if age is None:
        return f"block {one['block']} finds nothing; {gates}"
    found = f"finds entries for {one['found']:.1%}, half of their weight {age:,} or more back"
    return f"block {one['block']} {found}; {gates}"


def _median(shares: Sequence[Sequence[float]]) -> int | None:
    """The largest age at or above which lies half of the weight."""
    total = 0.0
    for age, share in reversed(shares):
        total += share
        if total >= 0.5:
            return int(age)
    return None
