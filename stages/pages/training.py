"""Training curves of the models that were read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stages.charts.drawing.figure import Figure
from stages.charts.drawing.line_chart import Axes, Line, line_chart
from stages.errors import ArtifactError
from stages.pages.chunks import in_figures
from stages.pages.lineage import Member

JOURNAL = "training.jsonl"
Records = Sequence[Mapping[str, Any]]


def training_figures(members: Sequence[Member]) -> list[Figure]:
    """Loss and learning rate over the steps, for every model whose `training.jsonl` is there."""
    journals = [(member, records) for member in members if (records := read_journal(member))]
    figures = []
    for suffix, part in in_figures(journals):
        figures += [_losses(part, suffix), _learning_rate(part, suffix)]
    return [figure for figure in figures if figure is not None]


def read_journal(member: Member) -> Records:
    """The lines of a model's `training.jsonl`; none where it is missing or damaged."""
    if member.artifact is None or member.kind != "model":
        return []
    try:
        text = member.artifact.file(JOURNAL).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ArtifactError, OSError, ValueError):
        return []


def _losses(chosen: Sequence[tuple[Member, Records]], suffix: str) -> Figure | None:
    lines = []
    for look, (member, records) in enumerate(chosen):
        label = member.label
        lines.append(Line(f"{label} train", _points(records, "loss"), dashed=True, look=look))
        lines.append(Line(f"{label} valid", _points(records, "valid_loss"), look=look))
    caption = (
        "Loss in nats a token over the updates: as it was trained (dashed) and on the validation split. "
        "Methods that train with memory minimize another loss than the plain one: compare such lines with care."
    )
    return line_chart(
        f"training-loss{suffix}",
        "Training: loss",
        caption,
        lines,
        Axes("step", "loss, nats", even=True),
        _table(chosen),
    )


def _learning_rate(chosen: Sequence[tuple[Member, Records]], suffix: str) -> Figure | None:
    lines = [Line(member.label, _points(records, "learning_rate")) for member, records in chosen]
    caption = "Learning rate at each update that was logged."
    axes = Axes("step", "learning rate", even=True)
    return line_chart(
        f"learning-rate{suffix}",
        "Training: learning rate",
        caption,
        lines,
        axes,
        _table(chosen, ("step", "learning_rate")),
    )


def _points(records: Records, name: str) -> list[tuple[float, float | None]]:
    return [(record["step"], record.get(name)) for record in records if "step" in record]


def _table(
    chosen: Sequence[tuple[Member, Records]], names: Sequence[str] = ()
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Columns and rows of all that was logged, or of some of it."""
    names = names or list(dict.fromkeys(name for _, records in chosen for record in records for name in record))
    rows = [[member.reference, *(r.get(name) for name in names)] for member, records in chosen for r in records]
    return ["model", *names], rows
