"""Figures of a model's gate in a report, from the records of shards. Free of torch."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import token_text
from stages.metrics import finite, perplexity
from stages.numbers import number

BINS = 50
"""Equal parts of [0, 1] in which gates are counted."""
GROUPS = 32
"""Groups of neighbouring dimensions, at most, in which a passage's gates are shown."""

Records = Sequence[Mapping[str, Any]]
"""Records of `stages.diagnostics.gate.watch`, one for each range of a split, in order."""


def gate_figures(gates: Records, numbers: Sequence[int]) -> dict[str, Any]:
    """The `gate` of `metrics.json`.

    Args:
        numbers: of neighbours of which perplexity is reported; the first is what the gate read.
    """
    tokens = sum(gate["tokens"] for gate in gates)
    nats = [_nats(sums) for sums in zip(*(gate["nll"] for gate in gates), strict=True)]
    return {
        "neighbors": numbers[0],
        "mean": sum(gate["sum"] for gate in gates) / tokens,
        "histogram": {
            "edges": [place / BINS for place in range(BINS + 1)],
            "tokens": _summed(gate["token_histogram"] for gate in gates),
            "values": _summed(gate["value_histogram"] for gate in gates),
        },
        "neighbors_right": {k: sum(gate["matches"][k] for gate in gates) / tokens for k in gates[0]["matches"]},
        "by_neighbors": [
            {"neighbors": k, "perplexity": perplexity(nll, tokens), "nll": finite(nll)}
            for k, nll in sorted(zip(numbers, nats, strict=True))
        ],
    }


def gate_curve(figures: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
    """Perplexity against the number of neighbours, as a curve of a report; none where no other number was asked for."""
    points = figures["by_neighbors"]
    return [{"row": row, "over": "neighbors", "points": points}] if len(points) > 2 else []


def passage_of(gates: Records, tokens: Artifact, split: str, passage: range) -> dict[str, Any]:
    """The content of `passage.json`: tokens that follow each other, their gates, and their neighbours beside them.

    Args:
        tokens: the artifact that the split is of.
        passage: places of the tokens in the split.
    """
    label = token_text(tokens).label
    shown = [token for gate in gates for token in gate["passage"]]
    return {
        "split": split,
        "start": passage.start,
        "stop": passage.stop,
        "tokens": [
            {
                "text": label(token["token"]),
                "probability": token["probability"],
                "gate": token["gate"],
                "neighbors": [label(other) if other >= 0 else None for other in token["neighbors"]],
            }
            for token in shown
        ],
    }


def summary(figures: Mapping[str, Any]) -> str:
    """`gate: 4 neighbours, mean 0.71; the best is right for 31.2% of the tokens, one of 4 for 45.0%`."""
    right = sorted((int(k), share) for k, share in figures["neighbors_right"].items())
    (_, best), (most, any_of_them) = right[0], right[-1]
    line = f"gate: {figures['neighbors']} neighbours, mean {number(figures['mean'])}; "
    line += f"the best is right for {best:.1%} of the tokens"
    return line if most == 1 else f"{line}, one of {most} for {any_of_them:.1%}"


def _summed(histograms: Iterable[Sequence[int]]) -> list[int]:
    total: list[int] = np.sum(list(histograms), axis=0).tolist()
    return total


def _nats(sums: Iterable[float | None]) -> float:
    return sum(inf if one is None else one for one in sums)
