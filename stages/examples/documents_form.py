"""Form of a split of documents: the label and the task of each. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.schema import Expected, between
from stages.examples.form import SplitForm

MOST = 2**31 - 1


def _of_each(low: int, what: str) -> Any:
    def form(figures: Mapping[str, Any], types: int) -> Expected:
        return Expected((figures["documents"],), ("int32",), between(low, MOST, what))

    return form


DOCUMENTS_FORM = SplitForm(arrays={"labels": _of_each(0, "labels"), "tasks": _of_each(0, "tasks")})
