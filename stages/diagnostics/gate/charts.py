"""Charts of a gate: how its values are distributed, how often its neighbours are right, where it opens in a passage.

As figures 5 and 6 of Yogatama et al. 2021 (SPALM, arXiv:2102.02557).
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from stages.charts.curves import accuracy_chart
from stages.charts.data import Chart, HeatMap, Histogram, Series, Share, Side, Table
from stages.charts.reported import Report, scored
from stages.numbers import number

KINDS = {"values": "all dimensions", "tokens": "mean of a token"}
LONGEST_LABEL = 16
"""Characters of a token's text that a heat map has room for."""


def gate_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
    """`gate-histogram`, `gate-accuracy`, `gate-passage`: as far as there are numbers.

    Args:
        metrics: the content of `metrics.json`.
        files: `passage.json`, if there is one.
    """
    gate = metrics.get("gate")
    if gate is None:
        return []
    charts = [_histogram(gate, metrics["split"])]
    if gate["neighbors_right"]:
        report = Report(metrics, scored(metrics))
        right = [(report, report.scored, gate["neighbors_right"])]
        charts.append(accuracy_chart("gate-accuracy", "Retrieval accuracy@K of the gate's neighbours", right))
    return [*charts, _passage(files["passage.json"])] if "passage.json" in files else charts


def _histogram(gate: Mapping[str, Any], split: str) -> Chart:
    """Shares of tokens, and of all dimensions of all tokens, by the value of the gate."""
    edges, counts = gate["histogram"]["edges"], gate["histogram"]
    return Chart(
        "gate-histogram",
        f"Gate on {split}, {gate['neighbors']} neighbours",
        f"How large gates are, from 0 (memory alone) to 1 (context alone); their mean is {number(gate['mean'])}.",
        Histogram(
            edges,
            [Series(label, [n / max(1, sum(counts[kind])) for n in counts[kind]]) for kind, label in KINDS.items()],
            gate["mean"],
            "gate g (0: memory, 1: context)",
        ),
        Table(
            ("from", "to", "tokens", "values"),
            [(*ends, *held) for ends, *held in zip(pairwise(edges), counts["tokens"], counts["values"], strict=True)],
        ),
    )


def _passage(passage: Mapping[str, Any]) -> Chart:
    """Gates of consecutive tokens (across), in groups of dimensions (up)."""
    tokens = passage["tokens"]
    groups = range(len(tokens[0]["gate"]))
    neighbors = (f"neighbor {place}" for place in range(1, 1 + len(tokens[0]["neighbors"])))
    return Chart(
        "gate-passage",
        f"Gate at tokens {passage['start']}:{passage['stop']} of {passage['split']}",
        "Where the gate opens to the memory and where it keeps to the context: tokens across, dimensions up.",
        HeatMap(
            [token["gate"] for token in tokens],
            Side("", [spelled(token["text"]) for token in tokens], turned=True),
            Side("dimensions, in groups" if len(groups) > 1 else "", [""] * len(groups)),
            Share("memory", "context"),
        ),
        Table(
            ("text", "probability", *(f"gate {group}" for group in groups), *neighbors),
            [(t["text"], t["probability"], *t["gate"], *t["neighbors"]) for t in tokens],
        ),
    )


def spelled(text: str) -> str:
    """A token that can be drawn: short, with a sign for each space, control characters as escapes."""
    shown = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return "".join(
        "␣" if sign == " " else sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in shown
    )
