"""Charts of training curves of models, and of the scores of a stream of tasks, task by task."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stages.charts.data import Chart, HeatMap, Line, Lines, Share, Side
from stages.charts.reported import in_charts
from stages.numbers import figure_name

RATE = "learning rate"


class Journal(NamedTuple):
    """The lines of a model's `training.jsonl`, and a label for the model."""

    label: str
    """Label of the model; empty if there is only one."""
    records: Sequence[Mapping[str, Any]]

    def points(self, name: str) -> list[tuple[float, float | None]]:
        return [(record["step"], record.get(name)) for record in self.records if "step" in record]


def training_charts(journals: Sequence[Journal]) -> Iterator[Chart]:
    """Charts of loss and learning rate over the steps."""
    for suffix, part in in_charts(journals):
        lines = []
        for look, journal in enumerate(part):
            lines.append(
                Line(
                    f"{journal.label} train".lstrip(),
                    journal.points("loss"),
                    dashed=True,
                    look=look,
                )
            )
            lines.append(
                Line(f"{journal.label} valid".lstrip(), journal.points("valid_loss"), look=look)
            )
        yield Chart(
            f"training-loss{suffix}",
            "Training: loss",
            "Loss in nats a token over the updates: as it was trained (dashed) and on the validation split. "
            "Methods that train with memory minimize another loss than the plain one: compare such lines with care.",
            Lines(lines, "step", "loss, nats", even=True),
        )
        rates = [Line(journal.label or RATE, journal.points("learning_rate")) for journal in part]
        caption = "Learning rate at each update that was logged."
        yield Chart(
            f"learning-rate{suffix}",
            "Training: learning rate",
            caption,
            Lines(rates, "step", RATE, even=True),
        )


FIGURES = ("average", "forgetting", "backward_transfer", "forward_transfer")
"""Figures of a stream, by their names in a matrix."""


def named_figures(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the figures of a stream; for perplexities, AP and AP+."""
    names = {"average": "AP", "forgetting": "AP+"} if metrics.get("score") else {}
    return {name: names.get(name, figure_name(name)) for name in FIGURES}


ANSWERS = {"f1": "F1 of words", "exact": "exact match", "goal": "joint goal"}


def measure(metrics: Mapping[str, Any]) -> str:
    """Name of the scores of a stream.

    >>> measure({}), measure({"scores": ["f1", "f1"]}), measure({"scores": ["f1", "goal"]})
    ('accuracy', 'F1 of words', 'score')
    >>> measure({"candidates": True})
    'accuracy among candidates'
    """
    if metrics.get("candidates"):
        return "accuracy among candidates"
    if len(kinds := set(metrics.get("scores", ()))) > 1:
        return "score"
    name: str = ANSWERS[kinds.pop()] if kinds else metrics.get("score", "accuracy")
    return name


def stream_charts(metrics: Mapping[str, Any]) -> Iterator[Chart]:
    """`matrix` of each reading and `average-by-task`; empty unless the weights after each task were
    scored.
    """
    rows = [row for row in metrics["rows"] if row["averages"] is not None]
    averages = [list(enumerate(row["averages"], 1)) for row in rows]
    if metrics.get("score") or not rows:
        for row, points in zip(rows, averages, strict=True):
            yield Chart(
                "average-by-task",
                "Average perplexity of the domains that were learnt",
                f"AP, the geometric mean. After the last domain: {row['average']:.2f}.",
                Lines([Line("AP", points)], "domains learnt", "perplexity", even=True),
            )
        return
    score = measure(metrics)
    tasks = metrics["tasks"]
    for row in rows:
        after = Side("after", ["before", *tasks], turned=True)
        test = Side("test", tasks)
        chart = Chart(
            "matrix",
            f"{score.capitalize()} by task, after each task",
            f"On average {row['average']:.1%} after the last task. Upwards: the task that is tested.",
            HeatMap(row["matrix"], after, test, Share("none right", "all right")),
        )
        yield chart.labelled(row["row"]) if len(rows) > 1 else chart
    lines = [Line(row["row"], points) for row, points in zip(rows, averages, strict=True)]
    ends = ", ".join(f"{row['row']} {row['average']:.1%}" for row in rows)
    yield Chart(
        "average-by-task",
        f"Mean {score} of the tasks that were learnt",
        f"After the last task: {ends}.",
        Lines(lines, "tasks learnt", score, percent=True, even=True),
    )
