"""Gains of the rows of several reports on one text, beside their costs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Point, Points, slug
from stages.errors import ArtifactError
from stages.evaluation.figures.seed_groups import compare_groups
from stages.numbers import percent
from stages.pages.headline import CONFIDENCE
from stages.pages.source import ReportSource
from stages.pages.tables import half_width
from stages.reports.measures import COUNTING, MEASURES, Measure, measured
from stages.reports.tables import Cell, Group, Row, Table, change, figure

Figures = Mapping[str, Any]
BITS = "bits_per_byte"


def cost_items(sources: Sequence[ReportSource]) -> Iterator[Table | Chart]:
    """Table and charts of each text that several reports scored, apart from seeds; none where
    models or tokens were deleted.
    """
    texts: dict[str, list[Artifact]] = {}
    labels = {}
    for source in sources:
        if source.member.artifact is not None:
            texts.setdefault(source.text, []).append(source.member.artifact)
            labels[source.member.reference] = source.label
    for reports in texts.values():
        try:
            comparison = compare_groups(reports, CONFIDENCE)
        except ArtifactError:
            continue
        groups = comparison["groups"]
        if len(groups) > 1 and known_costs(comparison):
            names = [labels[group["reports"][0]] for group in groups]
            yield costs_table(comparison, names)
            yield from gain_charts(comparison, names)


def known_costs(comparison: Figures) -> list[Measure]:
    """Measures of cost that some row has."""
    rows = [row for group in comparison["groups"] for row in group["rows"]]
    measures = MEASURES.costs()
    return [
        measure
        for measure in measures
        if any(row["costs"][measure.name] is not None for row in rows)
    ]


def costs_table(comparison: Figures, labels: Sequence[str]) -> Table:
    """A line for each row of all groups, with gain and costs.

    A row that several groups read from the same models stands once. A row of other models than the
    first group's begins with the label of its group.

    Args:
        comparison: from `stages.evaluation.figures.seed_groups.compare_groups`.
        labels: names of the groups.
    """
    costs = known_costs(comparison)
    lowest = min(row["perplexity"]["mean"] for _, row in named_rows(comparison, labels))
    rows = []
    for name, row in named_rows(comparison, labels):
        is_lowest = row["perplexity"]["mean"] == lowest
        rows.append(Row(_cells(name, row, costs, "best" if is_lowest else ""), (), is_lowest))

    first = comparison["groups"][0]["rows"][0]["row"]
    runs = max(len(group["reports"]) for group in comparison["groups"])
    confidence = percent(comparison["confidence"])
    caption = f"{comparison['split']}: change is against {first}"
    if runs > 1:
        caption += (
            f", run by run with the same seed; \N{PLUS-MINUS SIGN}: the {confidence} interval of the mean "
            f"of {runs} seeds, by Student's t"
        )
    caption += f". Brackets: the {confidence} interval over documents"
    caption += ", the widest of all seeds. " if runs > 1 else ". "
    caption += " ".join(measure.explanation for measure in costs)
    titles = [MEASURES.measure(BITS).title, *(measure.title for measure in costs)]
    columns = ("Memory", "perplexity", "change", COUNTING, *titles)
    return Table("Gain and cost", columns, [Group(rows)], caption)


def named_rows(comparison: Figures, labels: Sequence[str]) -> list[tuple[str, Figures]]:
    """The rows of all groups with their names, as `costs_table` shows them."""
    groups = comparison["groups"]
    rows: dict[tuple[Any, ...], tuple[str, Figures]] = {}
    for label, group in zip(labels, groups, strict=True):
        for row in group["rows"]:
            key = (*group["models"], row["row"], row["perplexity"]["mean"])
            is_first_model = set(group["models"]) <= set(groups[0]["models"])
            name = row["row"] if is_first_model else f"{label}: {row['row']}"
            rows.setdefault(key, (name, row))
    return list(rows.values())


def _cells(name: str, row: Figures, costs: Sequence[Measure], mark: str) -> list[Cell]:
    """Cells of a line, in the order of the columns; `mark`: of its first cell."""
    perplexity = row["perplexity"]
    share = None if row["change"] is None else row["change"]["mean"]
    spread = half_width(perplexity["interval"], lambda half: measured(half, "perplexity"))
    return [
        Cell(name, mark=mark),
        figure(perplexity["mean"], soft=spread),
        change(share, row["over_documents"]),
        figure(row["counting"]),
        figure(row[BITS], BITS),
        *(figure(row["costs"][measure.name], measure.name) for measure in costs),
    ]


def gain_charts(comparison: Figures, labels: Sequence[str]) -> Iterator[Chart]:
    """`gain-by-seconds` and its like: the change of each row over each cost that differs."""
    rows = named_rows(comparison, labels)
    (first, _), *others = rows
    for measure in known_costs(comparison):
        costs = {row["costs"][measure.name] for _, row in rows} - {None}
        if measure.better != "lower" or len(costs) < 2:
            continue
        points = []
        for name, row in others:
            share = None if row["change"] is None else row["change"]["mean"]
            points.append(Point(name, row["costs"][measure.name], share))
        yield Chart(
            f"gain-by-{slug(measure.name)}",
            f"Change of perplexity by {measure.title}",
            f"{comparison['split']}: change against {first}, over {measure.of}. Lower and further "
            "left is better.",
            Points(points, measure.title, "change of perplexity", percent=True),
        )
