"""A chart of how evenly slots are read."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, Line, Lines, Table

COLUMNS = ("block", "slots", "usage", "best usage", "KL", "heaviest", "share")


def usage_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`product-keys-usage`, if there are numbers.

    Args:
        metrics: the content of `metrics.json`.
    """
    keys = metrics.get("product_keys")
    if keys is None:
        return []
    blocks = keys["blocks"]
    most = max(blocks, key=lambda one: one["slots"])
    even = Line("all alike", [(number, number / most["slots"]) for number, _ in most["heaviest"]], dashed=True)
    lines = [Line(_label(one), [(number, share) for number, share in one["heaviest"]]) for one in blocks]
    ticks = [number for number, _ in most["heaviest"]][::2]
    return [
        Chart(
            "product-keys-usage",
            f"Product keys: how evenly slots are read on {metrics['split']}",
            "The share of all weight that the most read slots have: the farther above the dashed line, the fewer do "
            "the work.",
            Lines([*lines, even], "most read slots", "share of all weight", ticks, percent=True, even=True),
            Table(COLUMNS, [row for one in blocks for row in _rows(one)]),
        )
    ]


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}: {one['usage']:.0%} of {one['slots']:,} read"


def _rows(one: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    shared = (one["block"], one["slots"], one["usage"], one["best_usage"], one["kl"])
    return [(*shared, number, share) for number, share in one["heaviest"]]
