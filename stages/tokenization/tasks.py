"""Folders of tasks: the label and the task of every document, read from the records of the files of each split."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.stage import Inputs
from stages.errors import DataError, UsageError
from stages.text.config import TokenizeConfig
from stages.text.records import TextFile, records
from stages.text.tokens import SPLITS
from stages.tokenization.sources import text_files

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


class Labelled(NamedTuple):
    """Names of labels and of tasks, and by split the number of the label and of the task of each document."""

    labels: list[str]
    tasks: list[str]
    splits: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """int32 [documents] each."""


def read_tasks(inputs: Inputs, config: TokenizeConfig) -> Labelled:
    """Read the labels of all files.

    Raises: DataError for a record without text or label, and for a label that only other splits than train have.
    """
    read, names = _labels(inputs, config), list(config.task_names)
    labels, groups = label_names(read["train"].values()), config.label_groups
    numbers = {label: number for number, label in enumerate(labels)}
    of_label = {} if groups is None else _dealt(labels, groups, len(names))
    splits = {}
    for split, by_task in read.items():
        _require_learnt(split, by_task, read["train"])
        tasks = [of_label.get(one, number) for number, task in enumerate(by_task.values()) for one in task]
        own = [numbers[label] for task in by_task.values() for label in task]
        splits[split] = np.array(own, np.int32), np.array(tasks, np.int32)
    if groups is not None:
        names = [f"group-{number:02d}" for number in range(1, groups + 1)]
    return Labelled(labels, names, splits)


def _labels(inputs: Inputs, config: TokenizeConfig) -> dict[str, dict[str, list[str]]]:
    """Labels of the documents of each split, by task; an empty list where a task has no such split."""
    found: dict[str, dict[str, list[str]]] = {}
    for split in SPLITS:
        for file in text_files(inputs, config, split):
            found.setdefault(split, {name: [] for name in config.task_names})
            found[split][Path(file.path).parent.name] = read_labels(file, config.label)
    return found


def _dealt(labels: Sequence[str], groups: int, folders: int) -> dict[str, int]:
    if folders > 1:
        raise UsageError("--label-groups deals the labels of one folder: name one.")
    if groups > len(labels):
        raise UsageError(f"--label-groups {groups}: there are {len(labels)} labels, so at most as many tasks.")
    return dealt(labels, groups)


def _require_learnt(split: str, by_task: Mapping[str, Sequence[str]], train: Mapping[str, Sequence[str]]) -> None:
    for task, labels in by_task.items():
        unknown = sorted(set(labels) - set(train[task]))
        if unknown:
            raise DataError(f"Task {task}: {split} has the label {unknown[0]!r}, which train has not.")
