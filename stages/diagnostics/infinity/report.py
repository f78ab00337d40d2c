"""Figures of attention to a continuous signal, from the records of shards. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Records = Sequence[Mapping[str, Any]]
"""Records of `stages.diagnostics.infinity.probe.SignalWatch`, one for each range of a split, in order."""

PARTS = 16
"""Equal parts of the signal whose attention is reported apart."""


def signal_figures(records: Records, blocks: Sequence[int], sticky: bool) -> dict[str, Any]:
    """The `infinity` of `metrics.json`.

    Args:
        blocks: that have such attention, counted from 1, in the order of a record's lists.
        sticky: whether the old signal is sampled where attention falls.
    """
    tokens = sum(record["tokens"] for record in records)
    seen, parts, deviations, losses = (
        np.sum([record[name] for record in records], axis=0) for name in ("seen", "parts", "deviations", "divergences")
    )
    return {
        "sticky": sticky,
        "blocks": [
            {
                "block": block,
                "seen": float(number) / tokens,
                "deviation": float(deviation) / float(number) if number else None,
                "divergence": float(loss) / float(number) if number else None,
                "by_place": (row / row.sum()).tolist() if number else [],
            }
            for block, number, row, deviation, loss in zip(blocks, seen, parts, deviations, losses, strict=True)
        ],
    }


def summary(figures: Mapping[str, Any]) -> str:
    """`infinity: block 1 sees a signal for 95.0%, half of its attention in the oldest 0.41 of it, deviation 0.12`."""
    return f"infinity: {'; '.join(map(_line, figures['blocks']))}"


def _line(one: Mapping[str, Any]) -> str:
    if not one["by_place"]:
        return f"block {one['block']} sees no signal"
    half = f"half of its attention in the oldest {_median(one['by_place']):.2f} of it"
    return f"block {one['block']} sees a signal for {one['seen']:.1%}, {half}, deviation {one['deviation']:.2g}"


def _median(shares: Sequence[float]) -> float:
    """The place on [0, 1] before which lies half of the attention, which is even within a part."""
    ends = np.cumsum(shares)
    part = min(int(np.searchsorted(ends, 0.5)), len(shares) - 1)
    return (part + min(1.0, (0.5 - ends[part] + shares[part]) / shares[part])) / len(shares)
