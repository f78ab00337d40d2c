"""Streams of tasks on a page: the figures of each reading, the matrix and the curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.charts.figure import figures
from stages.charts.stream import FIGURES, stream_charts
from stages.pages.lineage import Member
from stages.pages.sections import Section
from stages.reports.tables import Cell, Group, Row, Table, share

Stream = tuple[Member, Mapping[str, Any]]
"""A matrix, and the content of its `metrics.json`."""


def tasks_table(streams: Sequence[Stream]) -> Table:
    """Every reading of every matrix."""
    groups = []
    for member, metrics in streams:
        facts = f"{member.reference}, {metrics['method']}, {len(metrics['tasks'])} tasks"
        rows = [Row([Cell(row["row"]), *(share(row[name]) for name in FIGURES)]) for row in metrics["rows"]]
        groups.append(Group(rows, Cell(member.label, None, facts, link=member.anchor), f"row-{member.id}"))
    caption = (
        "Accuracy after the last task; what earlier tasks lost and gained since they were learnt, later ones before."
    )
    return Table("Results", ("Memory", *(name.replace("_", " ") for name in FIGURES)), groups, caption)


def tasks_sections(streams: Sequence[Stream]) -> list[Section]:
    """The matrices and curves."""
    charts = [
        chart if len(streams) == 1 else chart.labelled(member.label)
        for member, metrics in streams
        for chart in stream_charts(metrics)
    ]
    return [Section("tasks", "Tasks", figures(charts))] if charts else []
