"""What a report tells of a weight that is another for each context. Free of torch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stages.numbers import number

BINS = 20
"""Equal parts of [0, 1] in which weights are counted."""
EDGES = [place / BINS for place in range(BINS + 1)]


def learned_figures(
    row: str, name: str, learned: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The `learned_weight` of `metrics.json`.

    Args:
        name: of the weight, as `--memory` takes it.
        learned: the record of the network, with its gains on parts of the tuning split that it was not fitted on.
        shards: the records of the scored split.
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
    }


def learned_line(report: Mapping[str, Any]) -> str:
    """What a learned weight gained where it was not fitted, or why one weight for all was read in its place."""
    figures = report["learned_weight"]
    one, split = (
        f"one {figures['name']} for all ({number(figures['one_for_all'])})",
        report["memories"][-1]["tune_split"],
    )
    gains = figures["held_out_gains"]
    if not gains:
        return f"{split} is too short to learn {figures['name']} ({figures['fitted_tokens']:,} tokens): {one} is read"
    change = f"{math.exp(-sum(gains) / len(gains)) - 1:+.1%}"
    parts = f"on {len(gains)} parts of {split} that it was not fitted on ({change} perplexity against {one})"
    if not figures["used"]:
        return f"a learned {figures['name']} does not gain for sure {parts}: {one} is read"
    return f"{figures['name']} is learned, on average {number(figures['mean'])}, and gains {parts}"
