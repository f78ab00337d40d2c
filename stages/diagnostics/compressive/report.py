"""Figures of compressive attention in a report, from the records of shards. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Records = Sequence[Mapping[str, Any]]
"""Records of `stages.diagnostics.compressive.probe.AttentionWatch`, one for each range of a split, in order."""

PARTS = 6
"""Equal parts of the slots, and of the cached positions, whose attention is reported apart."""
PLACES = [*(f"slots {n}" for n in range(1, PARTS + 1)), *(f"cached {n}" for n in range(1, PARTS + 1)), "segment"]
"""Where attention goes, the oldest first."""


def attention_figures(records: Records, blocks: Sequence[int]) -> dict[str, Any]:
    """The `compressive` of `metrics.json`.

    Args:
        blocks: that have such attention, counted from 1, in the order of a record's `attention` and `losses`.
    """
    tokens = sum(record["tokens"] for record in records)
    attention = np.sum([record["attention"] for record in records], axis=0) / tokens
    borders = sum(record["borders"] for record in records)
    losses = np.sum([record["losses"] for record in records], axis=0)
    return {
        "blocks": [
            {
                "block": block,
                "slots": float(row[:PARTS].sum()),
                "cached": float(row[PARTS:-1].sum()),
                "segment": float(row[-1]),
                "by_age": dict(zip(PLACES, row.tolist(), strict=True)),
                "loss": float(loss) / borders if borders else None,
            }
            for block, row, loss in zip(blocks, attention, losses, strict=True)
        ]
    }


def summary(figures: Mapping[str, Any]) -> str:
    """`compressive: attention to slots 12.1% in block 1, 20.3% in block 2; compression loss 0.0123, 0.0203`."""
    shares = ", ".join(f"{one['slots']:.1%} in block {one['block']}" for one in figures["blocks"])
    losses = ", ".join("none" if one["loss"] is None else f"{one['loss']:.3g}" for one in figures["blocks"])
    return f"compressive: attention to slots {shares}; compression loss {losses}"
