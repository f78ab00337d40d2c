"""What the gate of a model does: how its values are distributed, and where it opens in a passage."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stages.charts.figures.canvas import Add, write_figure
from stages.charts.figures.curves import LOOKS
from stages.numbers import number

LONGEST_LABEL = 16
"""Characters of a token's text that a heat map has room for."""


def draw_gate_histogram(report: Mapping[str, Any], add: Add) -> list[str]:
    """Share of gates by size, of the means of tokens and of all dimensions; nothing for a model without a gate.

    As figure 5 of Yogatama et al. 2021 (SPALM, arXiv:2102.02557).
    """
    gate = report["gate"]
    if gate is None:
        return []
    edges, counts = gate["histogram"]["edges"], gate["histogram"]
    figure = Figure()
    axes = figure.subplots()
    for (name, label), (colour, _) in zip(
        (("values", "all dimensions"), ("tokens", "mean of a token")), LOOKS, strict=False
    ):
        share = np.array(counts[name]) / max(1, sum(counts[name]))
        axes.stairs(
            share, edges, color=colour, label=label, fill=name == "values", alpha=0.55 if name == "values" else 1
        )
    axes.axvline(gate["mean"], color="black", linestyle="--", linewidth=1, label=f"mean {number(gate['mean'])}")
    axes.set_title(f"Gate on {report['split']}, {gate['neighbors']} neighbours (0: memory, 1: context)")
    axes.set_xlabel("gate g")
    axes.set_ylabel("share")
    axes.set_xlim(0, 1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend()
    rows = zip(edges[:-1], edges[1:], counts["tokens"], counts["values"], strict=True)
    return write_figure(figure, "gate-histogram", ("from", "to", "tokens", "values"), rows, add)


def draw_gate_passage(passage: Mapping[str, Any], add: Add) -> list[str]:
    """Gates of consecutive tokens (across), in groups of dimensions (up).

    As figure 6 of Yogatama et al. 2021 (SPALM, arXiv:2102.02557).

    Args:
        passage: the content of `passage.json`.
    """
    tokens = passage["tokens"]
    gates = np.array([token["gate"] for token in tokens])
    figure = Figure(figsize=(max(6.4, 1.6 + 0.15 * len(tokens)), 1.9 + 0.1 * max(8, gates.shape[1])))
    axes = figure.subplots()
    cells = axes.pcolormesh(gates.T, cmap="coolwarm_r", vmin=0, vmax=1)
    figure.colorbar(cells, ax=axes, label="gate (0: memory, 1: context)", pad=0.01)
    axes.set_title(f"Gate at tokens {passage['start']}:{passage['stop']} of {passage['split']}")
    axes.set_ylabel("dimensions, in groups" if gates.shape[1] > 1 else "")
    _label(axes, [token["text"] for token in tokens])
    groups = tuple(f"gate {group}" for group in range(gates.shape[1]))
    rows = [(t["text"], t["probability"], *t["gate"], *t["neighbors"]) for t in tokens]
    neighbors = tuple(f"neighbor {place}" for place in range(1, 1 + len(tokens[0]["neighbors"])))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        return write_figure(figure, "gate-passage", ("text", "probability", *groups, *neighbors), rows, add)


def _label(axes: Axes, texts: list[str]) -> None:
    """Tokens below their columns, as they are: `$` begins no formula, white space can be seen."""
    axes.set_yticks([])
    axes.set_xticks(np.arange(len(texts)) + 0.5, [spelled(text) for text in texts], rotation=90, fontsize=7)
    axes.tick_params(length=0)
    for label in axes.get_xticklabels():
        label.set_parse_math(False)


def spelled(text: str) -> str:
    """A token that can be drawn: short, with a sign for each space, control characters as escapes."""
    shown = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return "".join(
        "␣" if sign == " " else sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in shown
    )
