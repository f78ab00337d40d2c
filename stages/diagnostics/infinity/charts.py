"""A chart of where attention falls on a signal. As figure 4 of Martins et al. 2022 (∞-former, arXiv:2109.00301)."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, Line, Lines, Table


def signal_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`infinity-attention`, if there are numbers.

    Args:
        metrics: the content of `metrics.json`.
    """
    report = metrics.get("infinity") or {"blocks": []}
    blocks = [one for one in report["blocks"] if one["by_place"]]
    if not blocks:
        return []
    number = len(blocks[0]["by_place"])
    places = [(part + 0.5) / number for part in range(number)]
    kept = (
        "The old signal is sampled in proportion (sticky), so that what lies above the average takes more room."
        if report["sticky"]
        else "The old signal is sampled evenly."
    )
    return [
        Chart(
            "infinity-attention",
            f"Where attention falls on the long-term signal on {metrics['split']}",
            f"The share of attention that goes to each {number}th of the signal, from the oldest, at 0, to the newest; "
            f"{1 / number:.2%} each would be even. {kept}",
            Lines(
                [Line(_label(one), list(zip(places, one["by_place"], strict=True))) for one in blocks],
                "place on the signal, oldest to newest",
                "share of attention",
                percent=True,
                even=True,
            ),
            Table(
                ("block", "seen", "deviation", "divergence", "place", "share"),
                [
                    (one["block"], one["seen"], one["deviation"], one["divergence"], *pair)
                    for one in blocks
                    for pair in zip(places, one["by_place"], strict=True)
                ],
            ),
        )
    ]


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}, deviation {one['deviation']:.2g}"
