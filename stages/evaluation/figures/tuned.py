"""Figures of the tuning split: perplexities, and which numbers lie at an edge of what was tried."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class TunedRow(NamedTuple):
    """Figures of a row on the tuning split; perplexities are None where they are not known."""

    perplexity: float | None
    """At what was chosen."""
    over: str
    """Name of the first memory's amount: `k`, `size`."""
    curve: Sequence[tuple[int, float | None]]
    """Perplexity of a lone memory with every amount of it."""
    weights: Sequence[str]
    """Name of each memory's weight: `lambda`, `alpha`."""
    lowest: Sequence[bool]
    """Whether the weight of each memory is the smallest of several that were tried."""
    off: Sequence[bool]
    """Whether each memory changes nothing with its weight, and other weights were tried."""


class Tuned(NamedTuple):
    """Figures of the tuning split."""

    split: str
    plain: float | None
    """Perplexity of the model alone."""
    rows: Sequence[TunedRow]
    """Rows of memory: the requested one, then, of several memories, each alone."""


def tuning_figures(tuned: Tuned | None, largest: Mapping[str, int]) -> dict[str, Any]:
    """The `tuning` of `metrics.json`.

    Args:
        tuned: None: no number was tuned.
        largest: of amounts (`k`, `size`) the largest that there can be.
    """
    if tuned is None:
        return {"split": None, "plain": None, "rows": [], "largest": dict(largest)}
    return {**tuned._asdict(), "rows": [row._asdict() for row in tuned.rows], "largest": dict(largest)}
