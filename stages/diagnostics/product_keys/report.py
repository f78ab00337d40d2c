"""Figures of the slots that were read, from the records of shards. Free of torch."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Records = Sequence[Mapping[str, Any]]
"""Records of `stages.diagnostics.product_keys.probe.SlotsWatch`, one for each range of a split, in order."""


def packed(values: np.ndarray) -> str:
    """An array of float32 as text, short where most are 0."""
    return base64.b64encode(zlib.compress(values.astype(np.float32).tobytes())).decode()


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.float32).astype(np.float64)


def usage_figures(records: Records, blocks: Sequence[int]) -> dict[str, Any]:
    """The `product_keys` of `metrics.json`.

    Args:
        blocks: that have such a memory, counted from 1, in the order of a record's `weights` and `best`.
    """
    return {"blocks": [_of_block(records, place, block) for place, block in enumerate(blocks)]}


def _of_block(records: Records, place: int, block: int) -> dict[str, Any]:
    """Slots of one memory, of which z is the share of all weight that a slot had; KL in nats, from even use."""
    weights, best = (
        np.sum([unpacked(record[name][place]) for record in records], axis=0) for name in ("weights", "best")
    )
    z = weights / weights.sum()
    read = z[z > 0]
    return {
        "block": block,
        "slots": len(z),
        "usage": len(read) / len(z),
        "best_usage": np.count_nonzero(best) / len(z),
        "kl": float(np.log(len(z)) + (read * np.log(read)).sum()),
        "heaviest": _held_by_heaviest(z),
    }


def _held_by_heaviest(z: np.ndarray) -> list[list[float]]:
    """The share of all weight that the 1, 2, 4, … most read slots have, and all."""
    total = np.cumsum(np.sort(z)[::-1])
    numbers = sorted({*(2**power for power in range(len(z).bit_length()) if 2**power <= len(z)), len(z)})
    return [[number, float(total[number - 1])] for number in numbers]


def summary(figures: Mapping[str, Any]) -> str:
    """`product keys: block 3 read 98.2% of 16,384 slots, KL 0.41 nats from even use`."""
    lines = (
        f"block {one['block']} read {one['usage']:.1%} of {one['slots']:,} slots, KL {one['kl']:.2f} nats from even use"
        for one in figures["blocks"]
    )
    return f"product keys: {'; '.join(lines)}"
