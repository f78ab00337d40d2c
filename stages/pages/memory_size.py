"""What more memory is worth: perplexity and retrieval accuracy against how much is read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.charts.drawing.figure import Figure, slug
from stages.charts.drawing.line_chart import Axes, Line, line_chart
from stages.pages.chunks import in_figures
from stages.pages.source import Source
from stages.retrieval.hyperparameters import hyperparameters

AMOUNTS = {"neighbors": ("neighbours in the gate", "neighbours, k"), "rows": ("datastore size", "keys stored")}
"""What a curve runs over beside the amounts of readings: in words, and as the name of an axis."""
Curve = tuple[Source, Mapping[str, Any]]


def amount_figures(sources: Sequence[Source]) -> list[Figure]:
    """A chart for each amount and each text that was scored, of the curves with two points or more."""
    figures = []
    for over, scored, curves in _groups(sources):
        for suffix, part in in_figures(curves):
            name = f"perplexity-by-{slug(over)}-{slug(scored)}{suffix}"
            figures.append(_chart(name, over, scored, part))
    return [figure for figure in figures if figure is not None]


def accuracy_figures(sources: Sequence[Source]) -> list[Figure]:
    """Share of tokens whose word is among the best K neighbours, over K."""
    told = [(source, shares) for source in sources if (shares := _accuracy(source.metrics))]
    figures = []
    for suffix, part in in_figures(told):
        lines = [Line(source.series(source.scored), sorted(shares.items())) for source, shares in part]
        rows = [[s.member.reference, k, share] for s, shares in part for k, share in sorted(shares.items())]
        ks = sorted({k for _, shares in part for k in shares})
        caption = "Share of tokens that stand among the values of their best K neighbours."
        axes = Axes("K", "accuracy@K", x_values=ks, percent=True)
        table = ("report", "k", "accuracy"), rows
        figures.append(line_chart(f"retrieval-accuracy{suffix}", "Retrieval accuracy@K", caption, lines, axes, table))
    return [figure for figure in figures if figure is not None]


def _groups(sources: Sequence[Source]) -> Iterator[tuple[str, str, list[Curve]]]:
    groups: dict[tuple[str, str], list[Curve]] = {}
    for source in sources:
        for curve in source.metrics.get("curves") or ():
            if len(curve["points"]) > 1:
                groups.setdefault((curve["over"], source.scored), []).append((source, curve))
    for (over, scored), curves in groups.items():
        yield over, scored, curves


def _chart(name: str, over: str, scored: str, curves: Sequence[Curve]) -> Figure | None:
    amounts = AMOUNTS | {name: (one.words, one.axis) for name, one in hyperparameters().items()}
    words, across = amounts.get(over, (over, over))
    lines = [
        Line(source.series(curve["row"]), [(point[over], point["perplexity"]) for point in curve["points"]])
        for source, curve in curves
    ]
    first = {source.metrics["rows"][0]["perplexity"] for source, _ in curves}
    itself = any(curve["row"] == source.metrics["rows"][0]["row"] for source, curve in curves)
    level = first.pop() if len(first) == 1 and not itself else None
    axes = Axes(
        across,
        "perplexity",
        x_values=sorted({point[over] for _, curve in curves for point in curve["points"]}),
        level=level,
        level_label=curves[0][0].metrics["rows"][0]["row"],
    )
    caption = f"Perplexity of {scored} by {words}; other settings as tuned at each point."
    return line_chart(name, f"Perplexity by {words}: {scored}", caption, lines, axes, _table(curves))


def _table(curves: Sequence[Curve]) -> tuple[list[str], list[list[Any]]]:
    columns = list(dict.fromkeys(name for _, curve in curves for point in curve["points"] for name in point))
    rows = [
        [source.member.reference, curve["row"], *(point.get(name) for name in columns)]
        for source, curve in curves
        for point in curve["points"]
    ]
    return ["report", "row", *columns], rows


def _accuracy(metrics: Mapping[str, Any]) -> dict[int, float]:
    """Share by K: of a reading of neighbours, else of those that the gate reads."""
    shares = metrics.get("retrieval_accuracy") or (metrics.get("gate") or {}).get("neighbors_right") or {}
    return {int(k): share for k, share in shares.items()}
