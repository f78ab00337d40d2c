"""Charts of how old the entries are that are found, and how like what was looked for."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from stages.charts.data import Chart, Histogram, Line, Lines, Series, Table
from stages.diagnostics.memorizing.report import ANGLES
from stages.numbers import number

EDGES = [2 * place / ANGLES - 1 for place in range(ANGLES + 1)]
"""Borders of the bins that cosines are counted in."""


def search_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`memorizing-ages` and `memorizing-cosines`, if there are numbers.

    Args:
        metrics: the content of `metrics.json`.
    """
    report = metrics.get("memorizing")
    blocks = [] if report is None else [one for one in report["blocks"] if one["by_age"]]
    if not blocks:
        return []
    ages = sorted({age for one in blocks for age, _ in one["by_age"]})
    return [
        Chart(
            "memorizing-ages",
            f"How far back memory is read on {metrics['split']}",
            "The share of the weight of what searches in memory found, by how many positions it lies back; every age "
            "up to its double.",
            Lines(
                [Line(_label(one), [(age, share) for age, share in one["by_age"]]) for one in blocks],
                "positions back",
                "share of weight",
                ages,
                percent=True,
                even=True,
            ),
            Table(
                ("block", "found", "score", "age", "share"),
                [(one["block"], one["found"], one["score"], *pair) for one in blocks for pair in one["by_age"]],
            ),
        ),
        *_cosines([one for one in blocks if one.get("by_cosine")], metrics["split"]),
    ]


def _cosines(blocks: Sequence[Mapping[str, Any]], split: str) -> list[Chart]:
    """None of reports that were made before they were counted."""
    if not blocks:
        return []
    middles = [(low + high) / 2 for low, high in pairwise(EDGES)]
    shares = [one["by_cosine"] for one in blocks]
    mean = sum(m * share for part in shares for m, share in zip(middles, part, strict=True)) / len(blocks)
    return [
        Chart(
            "memorizing-cosines",
            f"How well the best entry fits on {split}",
            "The cosine of each query, of every head, and the key of the best entry of memory; their mean is "
            f"{number(mean)}.",
            Histogram(
                EDGES,
                [Series(f"block {one['block']}", part) for one, part in zip(blocks, shares, strict=True)],
                mean,
                "cosine of query and key",
            ),
            Table(
                ("block", "from", "to", "share"),
                [
                    (one["block"], *ends, share)
                    for one in blocks
                    for ends, share in zip(pairwise(EDGES), one["by_cosine"], strict=True)
                ],
            ),
        )
    ]


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}, gates {', '.join(f'{gate:.2f}' for gate in one['gates'])}"
