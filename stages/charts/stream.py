"""Charts of a stream of tasks: the matrix of each reading, and the mean of what was learnt, task by task."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.charts.data import Chart, HeatMap, Line, Lines, Share, Side

FIGURES = ("average", "forgetting", "backward_transfer", "forward_transfer")
"""Figures of a stream, as a matrix has them."""


def stream_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`matrix` of each reading and `average-by-task`, where the weights after each task were scored; else none."""
    rows = [row for row in metrics["rows"] if row["averages"] is not None]
    return [*(_matrix(metrics["tasks"], row, len(rows) > 1) for row in rows), *([_averages(rows)] if rows else [])]


def _matrix(tasks: Sequence[str], row: Mapping[str, Any], labelled: bool) -> Chart:
    after, scores = ["before", *tasks], row["matrix"]
    chart = Chart(
        "matrix",
        "Accuracy by task, after each task",
        f"On average {row['average']:.1%} after the last task. Upwards: the task that is tested.",
        HeatMap(scores, Side("after", after, turned=True), Side("test", tasks), Share("none right", "all right")),
    )
    return chart.labelled(row["row"]) if labelled else chart


def _averages(rows: Sequence[Mapping[str, Any]]) -> Chart:
    lines = [Line(row["row"], list(enumerate(row["averages"], 1))) for row in rows]
    ends = ", ".join(f"{row['row']} {row['average']:.1%}" for row in rows)
    return Chart(
        "average-by-task",
        "Mean accuracy of the tasks that were learnt",
        f"After the last task: {ends}.",
        Lines(lines, "tasks learnt", "accuracy", percent=True, even=True),
    )
