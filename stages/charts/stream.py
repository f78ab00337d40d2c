"""Charts of a stream of tasks: what each weights know of each task, and how the mean of what was learnt fares."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, HeatMap, Line, Lines, Share, Side, Table


def stream_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`matrix` and `average-by-task`, where the weights after each task were scored; else none."""
    if metrics["averages"] is None:
        return []
    tasks, scores = metrics["tasks"], metrics["matrix"]
    after = ["before", *tasks]
    points = list(enumerate(metrics["averages"], 1))
    return [
        Chart(
            "matrix",
            "Accuracy by task, after each task",
            f"On average {metrics['average']:.1%} after the last task. Upwards: the task that is tested.",
            HeatMap(scores, Side("after", after, turned=True), Side("test", tasks), Share("none right", "all right")),
            Table(("after", *tasks), [(name, *row) for name, row in zip(after, scores, strict=True)]),
        ),
        Chart(
            "average-by-task",
            "Mean accuracy of the tasks that were learnt",
            f"From {points[0][1]:.1%} after the first task to {points[-1][1]:.1%} after the last.",
            Lines([Line(metrics["method"], points)], "tasks learnt", "accuracy", percent=True, even=True),
            Table(("tasks", "accuracy"), points),
        ),
    ]
