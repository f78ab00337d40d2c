"""A chart of how old the entries are that are found."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, Line, Lines, Table


def age_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`memorizing-ages`, if there are numbers.

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
        )
    ]


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}, gates {', '.join(f'{gate:.2f}' for gate in one['gates'])}"
