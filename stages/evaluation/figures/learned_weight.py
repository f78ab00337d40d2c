"""Sentences about a weight that is another for each context. Free of torch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stages.metrics import perplexity
from stages.numbers import number

BINS = 20
"""Equal parts of [0, 1] in which weights are counted."""
HALF = 0.5
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
    gate: Mapping[str, Any] | None, shards: Sequence[Mapping[str, Any]], nll: Sequence[float], tokens: int
) -> list[dict[str, Any]] | None:
    """Perplexity where fewer and fewer tokens are searched for: `asked`, the share of the tuning split, and `searched`.

    None where nothing is learned of that.
    """
    if gate is None:
        return None
    places = range(len(gate["shares"]))
    sums = [[sum(shard["by_gain"][place][part] for shard in shards) for part in (0, 1)] for place in places]
    points = [(0.0, 0, nll[0]), *((share, *one) for share, one in zip(gate["shares"], sums, strict=True))]
    if gate["searched"] == 1:
        points.append((1.0, tokens, nll[1]))
    return [
        {"asked": share, "searched": searched / tokens, "perplexity": perplexity(nats, tokens)}
        for share, searched, nats in points
    ]


def learned_line(report: Mapping[str, Any]) -> str:
    """Sentence about the gain of a learned weight where it was not fitted, or why one weight for all was read."""
    figures = report["learned_weight"]
    one, split = (
        f"one {figures['name']} for all ({number(figures['one_for_all'])})",
        report["memories"][-1]["tune_split"],
    )
    gains = figures["held_out_gains"]
    if not gains:
        all_of_them = ", and every token is searched for" if "searched" in report["memories"][-1] else ""
        tokens = f"{figures['fitted_tokens']:,} tokens"
        return f"{split} is too short to learn {figures['name']} ({tokens}): {one} is read{all_of_them}"
    change = f"{math.exp(-sum(gains) / len(gains)) - 1:+.1%}"
    parts = f"on {len(gains)} parts of {split} that it was not fitted on ({change} perplexity against {one})"
    if not figures["used"]:
        return f"a learned {figures['name']} does not gain for sure {parts}: {one} is read"
    return f"{figures['name']} is learned, on average {number(figures['mean'])}, and gains {parts}"


def searches_line(report: Mapping[str, Any]) -> str | None:
    """How many searches were made, or of how many most of the gain comes; None where nothing is learned of that."""
    points = report["learned_weight"]["searches"]
    if not points or points[0]["perplexity"] is None or points[-1]["perplexity"] is None:
        return None
    if points[-1]["asked"] < 1:
        return f"{points[-1]['searched']:.1%} of the tokens were searched for, where most gain was expected"
    half = next(point for point in points if point["asked"] == HALF)
    return (
        f"with searches for {half['searched']:.0%} of the tokens, where most gain is expected, perplexity is "
        f"{number(half['perplexity'])} (searched={HALF})"
    )
