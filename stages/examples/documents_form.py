"""Form of a split of documents: the label and the task of each. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.schema import Count, Expected, Figures, between
from stages.examples.form import SplitForm

MOST = 2**31 - 1


class DocumentFigures(Figures):
    """Metrics of a split of documents."""

    task_documents: list[Count]
    """Documents of each task."""


def _labels(figures: Mapping[str, Any], _: int) -> Expected:
    return Expected((figures["documents"],), ("int32",), between(0, MOST, "labels"))


def _tasks(figures: Mapping[str, Any], _: int) -> Expected:
    return Expected((figures["documents"],), ("int32",), between(0, len(figures["task_documents"]), "tasks"))


FORM = SplitForm(DocumentFigures, {"labels": _labels, "tasks": _tasks})
