"""Whether lists that were learned of some keys still suit those that they hold."""

from collections.abc import Mapping
from typing import NamedTuple

MOST_LOST_RECALL, MOST_GROWTH, MOST_UNEVEN = 0.02, 4, 2
"""Beyond these other lists are needed: share of neighbours no longer found, times the keys, times the imbalance."""
SURE = 2
"""Standard errors that a loss of recall must exceed that by, not to be one of the draw of a few queries."""


class Learned(NamedTuple):
    """An index when its lists were learned: its keys, recall by k (empty if it was not measured), see `imbalance`."""

    rows: int
    recall: Mapping[str, float]
    imbalance: float


def no_longer_fits(
    learned: Learned, rows: int, recall: Mapping[str, float], error: Mapping[str, float], imbalance: float
) -> str | None:
    """Reason why the lists no longer suit the keys that they hold; None: they do.

    Args:
        rows: keys that they hold now.
        recall: by k, now, with its standard `error`; empty if it was not measured.
        imbalance: now.

    >>> no_longer_fits(Learned(100, {"1": 0.95}, 1.2), 200, {"1": 0.9}, {"1": 0.01}, 1.3)
    '90.0% of the 1 nearest keys are found, 95.0% at first'
    >>> no_longer_fits(Learned(100, {"1": 0.95}, 1.2), 200, {"1": 0.9}, {"1": 0.02}, 1.3)
    >>> no_longer_fits(Learned(100, {}, 1.2), 500, {}, {}, 1.3)
    'they hold 500, so that a query reads 5.0 times as many'
    >>> no_longer_fits(Learned(100, {}, 1.2), 200, {}, {}, 1.3)
    """
    lost = {k: learned.recall[k] - found - SURE * error[k] for k, found in recall.items() if k in learned.recall}
    worst = max(lost, key=lost.__getitem__, default=None)
    if worst is not None and lost[worst] > MOST_LOST_RECALL:
        return f"{recall[worst]:.1%} of the {worst} nearest keys are found, {learned.recall[worst]:.1%} at first"
    if rows > MOST_GROWTH * learned.rows:
        return f"they hold {rows:,}, so that a query reads {rows / learned.rows:.1f} times as many"
    if imbalance > MOST_UNEVEN * learned.imbalance:
        return f"some are so long that a query reads {imbalance / learned.imbalance:.1f} times as many"
    return None
