"""Figures of the four conditions on readings; `stages.evaluation.conditions` checks them. Does not
import torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

POSITIONS = 100
"""Positions of a run at which the conditions are checked, at most."""
FEW_POSITIONS = 12
"""The same in a short split; and where each reading of a short passage is one of several whole
windows.
"""
PASSAGE = 48
"""Tokens that are read again for a position, about."""


def checked_count(number: int, parts: int, tokens: int, *, rereads: bool = False) -> int:
    """Positions that are checked in range `number` of so many.

    Over all ranges they are `POSITIONS`, but no more than may be read again in the time of the
    split; or `FEW_POSITIONS`, where passages are read in several windows.

    Args:
        tokens: of the split.

    >>> checked_count(0, 1, tokens=400), checked_count(0, 1, tokens=10_000)
    (12, 100)
    """
    affordable = FEW_POSITIONS if rereads else max(FEW_POSITIONS, tokens // PASSAGE)
    positions = min(POSITIONS, affordable)
    return positions * (number + 1) // parts - positions * number // parts


TOLERANCES: Mapping[str, Mapping[str, float]] = {
    "fp32": {"future": 1e-4, "sum": 1e-3, "score": 1e-3},
    "bf16": {"future": 0.05, "sum": 1e-3, "score": 0.1},
}
"""Largest differences that rounding makes, by precision: nats, and of the sum probability.

The order of a sum depends on the shapes of batches, such as how many tokens fall into a cluster of
an adaptive softmax.
"""


def condition_figures(
    records: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    precision: str,
    ranges: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    """The entry `conditions` of `metrics.json`.

    `future`: nats by which scores changed when the text after them did. `sum`: distance of the
    probabilities' sum from 1. `score`: nats between a reported score and that without the token in
    sight. `in_one_pass`: whether the ranges cover the split once. `broken`: conditions that a row
    breaks.

    Args:
        records: of `ConditionCheck.record`, one for each range.
        names: names of the rows, the model alone first.
        precision: of the model, `fp32` or `bf16`.
        ranges: tokens of every range, in the order in which they were scored.
    """
    allowed = TOLERANCES[precision]
    rows = []
    for number, name in enumerate(names):
        largest: dict[str, float | None] = {}
        for kind in allowed:
            values = [record[kind][number] for record in records]
            largest[kind] = None if None in values else max(values, default=0.0)
        broken = [kind for kind, value in largest.items() if value is None or value > allowed[kind]]
        rows.append({"row": name, **largest, "broken": broken})

    edges = [start for start, _ in ranges[1:]]
    return {
        "positions": sum(record["positions"] for record in records),
        "in_one_pass": edges == [stop for _, stop in ranges[:-1]],
        "tolerances": dict(allowed),
        "rows": rows,
    }
