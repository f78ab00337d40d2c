"""Labels of the records of a task: one name each, and the numbers that the names of all tasks get."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stages.errors import DataError
from stages.text.records import TextFile, records

FIELDS = ("label_name", "label")
"""Fields that hold a label where nobody says: the first that a record has."""


def read_labels(file: TextFile, field: str | None) -> list[str]:
    """The label of each record of a file, as text.

    Args:
        field: the field that holds it; None: the first of FIELDS that there is.
    Raises: DataError for a record without text, or without a label that is a text or a whole number.
    """
    fields, found = FIELDS if field is None else (field,), list[str]()
    for number, record in enumerate(records(replace(file, fields=fields)), 1):
        where = f"{file.path}, record {number}"
        if not any(not block.isspace() for block in record.blocks if block):
            raise DataError(f"{where}: it has no text.")
        found.append(_label(where, record.fields, fields))
    return found


def _label(where: str, record: Mapping[str, Any], fields: Sequence[str]) -> str:
    value = next((record[field] for field in fields if field in record), None)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise DataError(
            f"{where}: expected a label, a text or a whole number, in its field {' or '.join(fields)}. "
            "--label names another field."
        )
    return str(value)


def label_names(tasks: Iterable[Iterable[str]]) -> list[str]:
    """The labels of all tasks, those of the first task first, within a task in alphabetical order; each once.

    >>> label_names([["Sports", "Business"], ["negative", "Business"]])
    ['Business', 'Sports', 'negative']
    """
    return list(dict.fromkeys(name for task in tasks for name in sorted(set(task))))


def dealt(names: Sequence[str], groups: int) -> dict[str, int]:
    """Deal labels into groups whose sizes differ by one at most, drawn with the seed 0.

    >>> dealt(["a", "b", "c"], 2)
    {'a': 1, 'b': 0, 'c': 0}
    """
    shuffled = np.random.default_rng(0).permutation(len(names))
    places = np.empty(len(names), np.int64)
    places[shuffled] = np.arange(len(names)) % groups
    return dict(zip(names, places.tolist(), strict=True))
