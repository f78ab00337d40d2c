"""Folders of tasks: label or answer, and task, of every document, read from the records of the files of each split."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.stage import Inputs
from stages.errors import DataError, UsageError
from stages.text.config import Records, TokenizeConfig
from stages.text.records import TextFile, records, require_unicode
from stages.text.tokens import SPLITS
from stages.tokenization.answered import ASKED, Answered, asked_of
from stages.tokenization.sources import text_files

FIELDS = ("label_name", "label")
"""Fields that hold a label where nobody says: the first that a record has."""


class TaskRecord(NamedTuple):
    """The label, or question and answers, of a record."""

    label: str | None = None
    asked: Answered | None = None
    candidates: tuple[str, ...] | None = None
    """Labels among which its own is found; None: among all."""


def read_records(
    file: TextFile, kind: Records, field: str | None = None, candidates: str | None = None
) -> list[TaskRecord]:
    """The label, or question and answers, of each record of a file.

    Args:
        field: the field that holds a label; None: the first of FIELDS that there is.
        candidates: the field that holds candidates, if any does; a file has it in each record, or in none.
    Raises: DataError for a record without text, without a label that is a text or a whole number, or without answer;
    for one whose candidates are no labels, or lack its own.
    """
    of_label = FIELDS if field is None else (field,)
    fields, found = {"labels": of_label, "text": ()}.get(kind, ASKED), list[TaskRecord]()
    read = (*fields, *([] if candidates is None else [candidates]))
    for number, record in enumerate(records(replace(file, fields=read)), 1):
        where, text = f"{file.path}, record {number}", "".join(record.blocks)
        if not text.strip():
            raise DataError(f"{where}: it has no text.")
        if kind == "labels":
            label = _label(where, record.fields, fields)
            found.append(TaskRecord(label, candidates=_candidates(where, record.fields, candidates, label)))
        elif kind == "text":
            found.append(TaskRecord())
        else:
            found.append(TaskRecord(asked=asked_of(where, text, record.fields, in_text=kind == "spans")))
    lacking = [number for number, one in enumerate(found, 1) if one.candidates is None]
    if lacking and len(lacking) < len(found):
        raise DataError(f"{file.path}, record {lacking[0]}: it has no field {candidates}, which others have.")
    return found


def _candidates(where: str, record: Mapping[str, Any], field: str | None, label: str) -> tuple[str, ...] | None:
    if field is None or field not in record:
        return None
    given = record[field]
    if not isinstance(given, list) or not all(type(one) in (str, int) for one in given):
        raise DataError(f"{where}: expected a list of labels, texts or whole numbers, in its field {field}.")
    named = tuple(map(str, given))
    if label not in named or len(set(named)) < len(named):
        fault = "a label stands twice" if label in named else f"its own label {label!r} is missing"
        raise DataError(f"{where}: {fault} in its field {field}.")
    return named


def _label(where: str, record: Mapping[str, Any], fields: Sequence[str]) -> str:
    value = next((record[field] for field in fields if field in record), None)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise DataError(
            f"{where}: expected a label, a text or a whole number, in its field {' or '.join(fields)}. "
            "--label names another field; --records is for records with answers, or with their text alone."
        )
    require_unicode(f"{where}, label", str(value))
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


class Tasks(NamedTuple):
    """Names of labels and of tasks; by split the number of the label, -1 where there is none, and of the task."""

    labels: list[str]
    names: list[str]
    splits: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """int32 [documents] each."""
    asked: Mapping[str, list[Answered]]
    """Question and answers of each document; empty where records have none."""
    candidates: Mapping[str, list[list[int] | None]]
    """Numbers of the labels among which each document's is found, None: all; only of splits that have some."""


def read_tasks(inputs: Inputs, config: TokenizeConfig) -> Tasks:
    """Read the records of all files.

    Raises: DataError for a record that lacks something, and for a label that only other splits than train have.
    """
    read, names, groups = _records(inputs, config), list(config.task_names), config.label_groups
    of_tasks = {
        split: {name: [one.label for one in found if one.label is not None] for name, found in by_task.items()}
        for split, by_task in read.items()
    }
    labels = label_names(of_tasks["train"].values())
    numbers: dict[str | None, int] = {None: -1} | {label: number for number, label in enumerate(labels)}
    of_label = {} if groups is None else _dealt(labels, groups, len(names))
    splits, asked, candidates = {}, {}, {}
    for split, by_task in read.items():
        _require_learnt(split, of_tasks[split], of_tasks["train"])
        every = [(number, one) for number, task in enumerate(by_task.values()) for one in task]
        tasks = [of_label.get(one.label or "", number) for number, one in every]
        splits[split] = np.array([numbers[one.label] for _, one in every], np.int32), np.array(tasks, np.int32)
        asked[split] = [one.asked for _, one in every if one.asked is not None]
        if any(one.candidates for _, one in every):
            candidates[split] = [_numbered(split, one.candidates, numbers) for _, one in every]
    if config.candidates is not None and not candidates:
        raise DataError(f"--candidates {config.candidates}: no record has a field of that name.")
    if groups is not None:
        names = [f"group-{number:02d}" for number in range(1, groups + 1)]
    return Tasks(labels, names, splits, asked, candidates)


def _numbered(split: str, named: Sequence[str] | None, numbers: Mapping[str | None, int]) -> list[int] | None:
    """The numbers of labels. Raises: DataError for a name that no label of train has."""
    for name in named or ():
        if name not in numbers:
            raise DataError(f"{split} has the candidate {name!r}, which is no label of train.")
    return None if named is None else [numbers[name] for name in named]


def _records(inputs: Inputs, config: TokenizeConfig) -> dict[str, dict[str, list[TaskRecord]]]:
    """The records of each split, by task; an empty list where a task has no such split."""
    found: dict[str, dict[str, list[TaskRecord]]] = {}
    for split in SPLITS:
        for file in text_files(inputs, config, split):
            found.setdefault(split, {name: [] for name in config.task_names})
            found[split][Path(file.path).parent.name] = read_records(
                file, config.records, config.label, config.candidates
            )
    return found


def texts_of(inputs: Inputs, config: TokenizeConfig, split: str) -> list[str]:
    """The texts of the records of a split."""
    return ["".join(record.blocks) for file in text_files(inputs, config, split) for record in records(file)]


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
