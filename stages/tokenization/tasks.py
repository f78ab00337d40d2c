"""Folders of tasks: their files by split, and the labels and tasks of documents, beside their tokens."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.stage import Job
from stages.errors import DataError, UsageError
from stages.examples import DOCUMENTS
from stages.text.config import TokenizeConfig
from stages.text.labels import dealt, label_names, read_labels
from stages.text.tokens import SPLITS
from stages.tokenization.assembly import write_array
from stages.tokenization.sources import text_files


def _labels(job: Job[TokenizeConfig]) -> dict[str, dict[str, list[str]]]:
    """Labels of the documents of each split, by task; an empty list where a task has no such split."""
    found: dict[str, dict[str, list[str]]] = {}
    for split in SPLITS:
        for file in text_files(job.inputs, job.config, split):
            found.setdefault(split, {name: [] for name in job.config.task_names})
            found[split][Path(file.path).parent.name] = read_labels(file, job.config.label)
    return found


def write_tasks(job: Job[TokenizeConfig], splits: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Write the label and the task of every document; returns what the metrics say of them.

    `splits`: figures of the splits, which get the documents of each task.
    Raises: DataError for a label that only other splits than train have, or a record that is no document.
    """
    read, names = _labels(job), list(job.config.task_names)
    labels = label_names(read["train"].values())
    numbers = {label: number for number, label in enumerate(labels)}
    groups = job.config.label_groups
    if groups is not None:
        _require_groups(groups, len(names), len(labels))
        of_label = dealt(labels, groups)
        names = [f"group-{number:02d}" for number in range(1, groups + 1)]
    for split, by_task in read.items():
        _require_learnt(split, by_task, read["train"])
        own = np.array([numbers[label] for task in by_task.values() for label in task], np.int32)
        if groups is not None:
            tasks = np.array([of_label[label] for task in by_task.values() for label in task], np.int32)
        else:
            tasks = np.repeat(np.arange(len(names), dtype=np.int32), [len(task) for task in by_task.values()])
        if len(own) != splits[split]["documents"]:
            raise DataError(
                f"{split} has {len(own):,} records, but {splits[split]['documents']:,} documents: one has no text."
            )
        splits[split]["task_documents"] = np.bincount(tasks, minlength=len(names)).tolist()
        for name, values in {"labels": own, "tasks": tasks}.items():
            write_array(job, f"{split}/{name}", len(own), np.dtype(np.int32), _rows(values))
    return {"examples": DOCUMENTS, "tasks": names, "labels": labels}


def _rows(values: np.ndarray) -> Callable[[int, int], np.ndarray]:
    """Rows [start, stop) of values in memory."""
    return lambda start, stop: values[start:stop]


def _require_groups(groups: int, folders: int, labels: int) -> None:
    if folders > 1:
        raise UsageError("--label-groups deals the labels of one folder: name one.")
    if groups > labels:
        raise UsageError(f"--label-groups {groups}: there are {labels} labels, so at most as many tasks.")


def _require_learnt(split: str, by_task: Mapping[str, Sequence[str]], train: Mapping[str, Sequence[str]]) -> None:
    for task, labels in by_task.items():
        unknown = sorted(set(labels) - set(train[task]))
        if unknown:
            raise DataError(f"Task {task}: {split} has the label {unknown[0]!r}, which train has not.")
