"""Charts of perplexity and retrieval accuracy against how much memory is read, for one report or several."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.charts.data import Chart, Level, Line, Lines, slug
from stages.charts.reported import Report, in_charts, measure, symbol_in_words

TITLE = "Retrieval accuracy@K"
BY_CHANCE = ", by chance"
Curve = tuple[Report, Mapping[str, Any]]


def curve_charts(reports: Sequence[Report]) -> list[Chart]:
    """One for each amount and each text that was scored, of the curves with two points or more.

    `perplexity-by-size`, `-window`, `-k`, `-neighbors`; the text is in the name where there are several.
    """
    several = len({report.scored for report in reports}) > 1
    charts = []
    for over, scored, curves in _groups(reports):
        name = f"perplexity-by-{slug(over)}" + (f"-{slug(scored)}" if several else "")
        charts += [_chart(f"{name}{suffix}", over, scored, part) for suffix, part in in_charts(curves)]
    return charts


def accuracy_charts(reports: Sequence[Report]) -> list[Chart]:
    """Share of tokens whose word is among the best K neighbours, over K."""
    measured = (("retrieval_accuracy", ""), ("retrieval_accuracy_by_chance", BY_CHANCE))
    accuracies = [
        (report, f"{report.scored}{what}", shares)
        for report in reports
        for name, what in measured
        if (shares := report.metrics.get(name))
    ]
    return [accuracy_chart(f"retrieval-accuracy{suffix}", TITLE, part) for suffix, part in in_charts(accuracies)]


def accuracy_chart(name: str, title: str, accuracies: Sequence[tuple[Report, str, Mapping[str, float]]]) -> Chart:
    """Chart the share of correct retrievals by K, for each report and each count."""
    curves = [
        (report, row, sorted((int(k), share) for k, share in shares.items())) for report, row, shares in accuracies
    ]
    by_chance = any(row.endswith(BY_CHANCE) for _, row, _ in curves)
    return Chart(
        name,
        title,
        "Share of tokens that stand among the values of their best K neighbours"
        + ("; by chance: of K rows drawn at random." if by_chance else "."),
        Lines(
            [Line(report.series(row), points) for report, row, points in curves],
            *("K", "accuracy@K"),
            ticks=sorted({k for _, _, points in curves for k, _ in points}),
            percent=True,
        ),
    )


def _groups(reports: Sequence[Report]) -> Iterator[tuple[str, str, list[Curve]]]:
    groups: dict[tuple[str, str], list[Curve]] = {}
    for report in reports:
        for curve in report.metrics.get("curves") or ():
            if len(curve["points"]) > 1:
                groups.setdefault((curve["over"], report.scored), []).append((report, curve))
    for (over, scored), curves in groups.items():
        yield over, scored, curves


def _chart(name: str, over: str, scored: str, curves: Sequence[Curve]) -> Chart:
    words = symbol_in_words(over)
    lines = [
        Line(report.series(curve["row"]), [(point[over], point["perplexity"]) for point in curve["points"]])
        for report, curve in curves
    ]
    return Chart(
        name,
        f"{measure(curves[0][0].metrics)} by {words}: {scored}",
        f"Perplexity of {scored} by {words}; other settings as tuned at each point.",
        Lines(
            lines,
            words,
            "perplexity",
            ticks=sorted({x for line in lines for x, _ in line.points}),
            level=_level(curves),
        ),
    )


def _level(curves: Sequence[Curve]) -> Level | None:
    """The first row, without memory, if all reports agree on it and it is not among the curves."""
    firsts = [(report.metrics["rows"][0], curve["row"]) for report, curve in curves]
    perplexities = {first["perplexity"] for first, _ in firsts}
    if len(perplexities) > 1 or None in perplexities or any(first["row"] == row for first, row in firsts):
        return None
    return Level(firsts[0][0]["row"], perplexities.pop())
