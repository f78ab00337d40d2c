"""Figures of the tuning split: perplexities, numbers at an edge of what was tried, weights learned. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stages.metrics import perplexity


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


BINS = 20
"""Equal parts of [0, 1] in which weights are counted."""
EDGES = [place / BINS for place in range(BINS + 1)]


def learned_figures(
    row: str,
    name: str,
    learned: Mapping[str, Any],
    shards: Sequence[Mapping[str, Any]],
    nll: Sequence[float],
    tokens: int,
) -> dict[str, Any]:
    """The `learned_weight` of `metrics.json`.

    Args:
        name: of the weight, as `--memory` takes it.
        learned: the record of the network, with its gains on parts of the tuning split that it was not fitted on.
        shards: the records of the scored split.
        nll: summed nats of the model alone and of the row, over so many `tokens`.
    """
    counted = [shard["weights"] for shard in shards if "weights" in shard]
    counts = [sum(column) for column in zip(*(one["counts"] for one in counted), strict=True)]
    return {
        "row": row,
        "name": name,
        "used": learned["network"] is not None,
        "one_for_all": learned["weight"],
        "fitted_tokens": learned["tokens"],
        "held_out_gains": list(learned["gains"]),
        "mean": sum(one["sum"] for one in counted) / sum(counts) if counts else None,
        "histogram": {"edges": EDGES, "tokens": counts} if counts else None,
        "searches": _searches(learned["gate"], shards, nll, tokens),
    }


def _searches(
    gains: Mapping[str, Any] | None, shards: Sequence[Mapping[str, Any]], nll: Sequence[float], tokens: int
) -> list[dict[str, Any]] | None:
    """Perplexity where fewer and fewer tokens are searched for: `asked`, the share of the tuning split, and `searched`.

    None where nothing is learned of that.
    """
    if gains is None:
        return None
    places = range(len(gains["shares"]))
    sums = [[sum(shard["by_gain"][place][part] for shard in shards) for part in (0, 1)] for place in places]
    points = [(0.0, 0, nll[0]), *((share, *one) for share, one in zip(gains["shares"], sums, strict=True))]
    if gains["searched"] == 1:
        points.append((1.0, tokens, nll[1]))
    return [
        {"asked": share, "searched": searched / tokens, "perplexity": perplexity(nats, tokens)}
        for share, searched, nats in points
    ]
