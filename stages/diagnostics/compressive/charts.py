"""A chart of where attention goes. As figure 5 of Rae et al. 2020 (Compressive Transformer, arXiv:1911.05507)."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, Line, Lines, Table


def attention_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`compressive-attention`, if there are numbers.

    Args:
        metrics: the content of `metrics.json`.
    """
    reported = metrics.get("compressive")
    if reported is None:
        return []
    blocks = reported["blocks"]
    places = list(blocks[0]["by_age"])
    lines = [Line(f"block {one['block']}", list(enumerate(one["by_age"].values(), 1))) for one in blocks]
    return [
        Chart(
            "compressive-attention",
            f"Attention to compressed slots on {metrics['split']}",
            f"The share of attention that goes to each sixth of the slots (1 to {len(places) // 2}), the oldest first, "
            f"of the cached positions (to {len(places) - 1}) and to the segment itself ({len(places)}).",
            Lines(lines, "oldest slots … newest, oldest cached … newest, segment", "share of attention", percent=True),
            Table(("block", "loss", *places), [(one["block"], one["loss"], *one["by_age"].values()) for one in blocks]),
        )
    ]
