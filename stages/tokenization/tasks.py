"""Folders of tasks: the label and the task of every document, read from the files of each split."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stages.artifacts.stage import Inputs
from stages.errors import DataError, UsageError
from stages.text.config import TokenizeConfig
from stages.text.labels import dealt, label_names, read_labels
from stages.text.tokens import SPLITS
from stages.tokenization.sources import text_files


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
