"""Training curves of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.data import Chart, Line, Lines
from stages.charts.reported import in_charts

RATE = "learning rate"


@dataclass(frozen=True)
class Journal:
    """The lines of a model's `training.jsonl`, and what to call the model."""

    label: str
    """Empty: it is alone."""
    records: Sequence[Mapping[str, Any]]

    def points(self, name: str) -> list[tuple[float, float | None]]:
        return [(record["step"], record.get(name)) for record in self.records if "step" in record]


def training_charts(journals: Sequence[Journal]) -> list[Chart]:
    """Loss and learning rate over the steps."""
    return [chart for suffix, part in in_charts(journals) for chart in (_loss(part, suffix), _rate(part, suffix))]


def _loss(journals: Sequence[Journal], suffix: str) -> Chart:
    lines = []
    for look, journal in enumerate(journals):
        lines.append(Line(f"{journal.label} train".lstrip(), journal.points("loss"), dashed=True, look=look))
        lines.append(Line(f"{journal.label} valid".lstrip(), journal.points("valid_loss"), look=look))
    return Chart(
        f"training-loss{suffix}",
        "Training: loss",
        "Loss in nats a token over the updates: as it was trained (dashed) and on the validation split. "
        "Methods that train with memory minimize another loss than the plain one: compare such lines with care.",
        Lines(lines, "step", "loss, nats", even=True),
    )


def _rate(journals: Sequence[Journal], suffix: str) -> Chart:
    return Chart(
        f"learning-rate{suffix}",
        "Training: learning rate",
        "Learning rate at each update that was logged.",
        Lines([Line(j.label or RATE, j.points("learning_rate")) for j in journals], "step", RATE, even=True),
    )
