"""How far a model with a gate relies on its context, and how far on its neighbours."""

from collections.abc import Sequence
from itertools import pairwise

from stages.charts.drawing.bar_chart import Bars, bar_chart
from stages.charts.drawing.figure import Figure, slug
from stages.numbers import number, percent
from stages.pages.source import Source

KINDS = {"tokens": "mean of a token", "values": "single dimensions"}


def gate_figures(sources: Sequence[Source]) -> list[Figure]:
    """A histogram of each report whose model has a gate."""
    figures = [_histogram(source) for source in sources if (source.metrics.get("gate") or {}).get("histogram")]
    return [figure for figure in figures if figure is not None]


def _histogram(source: Source) -> Figure | None:
    """Shares of tokens, and of all dimensions of all tokens, by the value of the gate."""
    gate = source.metrics["gate"]
    edges = gate["histogram"]["edges"]
    counts = {kind: gate["histogram"][kind] for kind in KINDS if gate["histogram"].get(kind)}
    return bar_chart(
        f"gate-{slug(source.label)}",
        f"Gate: {source.label}, {source.scored}",
        f"Gates with {gate['neighbors']} neighbours, from 0 (memory alone) to 1 (context alone); their mean is "
        f"{number(gate['mean'])}.",
        [f"{edge:g}" for edge in edges[:-1]],
        [Bars(KINDS[kind], [count / sum(values) for count in values]) for kind, values in counts.items()],
        ("gate, from", "share"),
        percent,
        (
            ["from", "to", *counts],
            [[*ends, *held] for ends, *held in zip(pairwise(edges), *counts.values(), strict=True)],
        ),
    )
