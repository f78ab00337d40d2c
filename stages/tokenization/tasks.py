"""Folders of tasks: the task of every document, and its label, or question and answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.stage import Inputs
from stages.errors import DataError, UsageError
from stages.reporting import Reporter
from stages.text.config import Records, TokenizeConfig
from stages.text.files import pieces
from stages.text.records import TextFile, records, require_unicode
from stages.text.tokenizer import TextTokenizer
from stages.text.tokens import SPLITS
from stages.tokenization.size_warnings import UNKNOWN
from stages.tokenization.sources import text_files

QUESTION_FIELDS = ("question", "answer", "answers", "answer_start", "dialogue")
"""Fields of a record with an answer."""


class Answered(NamedTuple):
    """A question about a text, and its accepted answers."""

    question: str
    answers: tuple[str, ...]
    """All accepted answers; the first is learnt."""
    start: int | None = None
    """Character of the text at which the first answer begins; None: the answer is free text."""
    dialogue: str | None = None
    """Name of the dialogue; this is its next turn."""

    def dumped(self) -> dict[str, Any]:
        """The fields that scoring reads, as JSON."""
        return {"answers": self.answers} | (
            {} if self.dialogue is None else {"dialogue": self.dialogue}
        )


def asked_of(where: str, text: str, record: Mapping[str, Any], in_text: bool) -> Answered:
    """Question and answers of a record.

    Args:
        in_text: whether the first answer must occur in the text: at `answer_start` if given, else
        anywhere.
    Raises: DataError, beginning with `where`, for a record without an answer, or with one that is
    not in the text.
    """
    value = record.get("answers", record.get("answer"))
    answers = value if isinstance(value, list) else [value]
    if not answers or not all(isinstance(answer, str) and answer.strip() for answer in answers):
        raise DataError(
            f"{where}: expected a text in its field answer, or a list of texts in its field answers."
        )
    question = record.get("question", "")
    if not isinstance(question, str):
        raise DataError(f"{where}: its question is no text.")
    for name, answer in (("question", question), *(("answer", answer) for answer in answers)):
        require_unicode(f"{where}, {name}", answer)
    named = record.get("answer_start")
    dialogue = record.get("dialogue")
    if dialogue is not None and type(dialogue) not in (str, int):
        raise DataError(
            f"{where}: expected the name of a dialogue, a text or a whole number, in its field dialogue."
        )
    if in_text and named is not None and type(named) is not int:
        raise DataError(
            f"{where}: expected the number of a character in its field answer_start, counted from 0."
        )
    start = None
    if in_text:
        first = answers[0]
        start = (
            text.find(first)
            if named is None
            else named
            if named >= 0 and text[named:].startswith(first)
            else -1
        )
        if start < 0:
            place = "" if named is None else f" at character {named}"
            raise DataError(
                f"{where}: the answer {first!r} does not stand in the text{place}; --records answers is for answers "
                "in other words."
            )
    return Answered(question, tuple(answers), start, None if dialogue is None else str(dialogue))


class AnswerArrays(NamedTuple):
    """Questions and answers of a split as tokens, each followed by `<eos>`; see `QUESTIONS` of
    `form`.
    """

    question_ids: np.ndarray
    question_offsets: np.ndarray
    answer_ids: np.ndarray
    answer_offsets: np.ndarray
    span_starts: np.ndarray
    span_stops: np.ndarray

    @property
    def figures(self) -> dict[str, int]:
        """Figures of the split."""
        longest = int(np.diff(self.answer_offsets).max()) - 1
        counts = {"question_tokens": len(self.question_ids), "answer_tokens": len(self.answer_ids)}
        return counts | {"longest_answer": longest}


def answer_arrays(
    tokenizer: TextTokenizer, records: Sequence[Answered], texts: Sequence[str]
) -> AnswerArrays:
    """Encode the questions and answers of a split; `texts` are encoded again to find spans."""
    questions = _encoded(tokenizer, [record.question for record in records])
    answers = _encoded(tokenizer, [record.answers[0] for record in records])
    spans = np.full((len(records), 2), -1, np.int32)
    if records and records[0].start is not None:
        # one that tells offsets
        whole = tokenizer.huggingface()
        for row, record, text in zip(spans, records, texts, strict=True):
            assert record.start is not None
            offsets = _token_offsets(whole, _encoded_apart(tokenizer, text))
            row[:] = token_span(offsets, record.start, len(record.answers[0]))
    return AnswerArrays(*questions, *answers, *spans.T)


def _token_offsets(tokenizer: Any, parts: Iterable[str]) -> list[tuple[int, int]]:
    """First character of each token of a text in parts, and one past its last."""
    offsets = []
    start = 0
    for part in parts:
        encoding = tokenizer.encode(part, add_special_tokens=False)
        for first, stop in encoding.offsets:
            offsets.append((start + first, start + stop))
        start += len(part)
    return offsets


def _encoded_apart(tokenizer: TextTokenizer, text: str) -> list[str]:
    """The parts of a text that were encoded separately: very long lines, and so words, were cut."""
    parts: list[list[str]] = [[]]
    for piece in pieces([text]):
        if not piece.starts_line and tokenizer.may_cut(parts[-1][-1], piece.text):
            parts.append([])
        parts[-1].append(piece.text)
    return ["".join(part) for part in parts]


def _encoded(tokenizer: TextTokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of texts end to end, and where each begins, int64 [D + 1]."""
    # One by one: a pretrained tokenizer may join texts that it gets together.
    parts = []
    for text in texts:
        ids: Any = tokenizer.encode_texts([text])[0] if text else []
        parts.append(np.append(ids, tokenizer.eos_id))
    all_ids = np.concatenate(parts).astype(tokenizer.dtype)
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return all_ids, offsets


def token_span(offsets: Sequence[tuple[int, int]], start: int, length: int) -> tuple[int, int]:
    """Tokens [first, last + 1) that contain a character of an answer; (-1, -1): there are none.

    Args:
        offsets: characters [start, stop) of each token.

    >>> token_span([(0, 1), (1, 5), (5, 9)], start=2, length=3)
    (1, 2)
    """
    inside = [place for place, (a, b) in enumerate(offsets) if a < start + length and b > start]
    return (inside[0], inside[-1] + 1) if inside else (-1, -1)


def warn_of_unknown_questions(
    split: str, arrays: AnswerArrays, unknown: int | None, reporter: Reporter
) -> None:
    """Warn of questions and answers with words that do not occur in the texts."""
    rate = (np.concatenate((arrays.question_ids, arrays.answer_ids)) == unknown).mean()
    if rate > UNKNOWN:
        reporter.warning(
            f"{rate:.1%} of the tokens of questions and answers of {split} are <unk>: a vocabulary of words has those "
            "of the texts alone; --tokenizer bpe knows all"
        )


def warn_of_similar_labels(labels: Sequence[str], reporter: Reporter) -> None:
    """Warn of labels that differ in white space or letter case alone: each is learnt for itself."""
    spellings: dict[str, list[str]] = {}
    for label in labels:
        spellings.setdefault(" ".join(label.split()).casefold(), []).append(label)
    for similar in spellings.values():
        if len(similar) > 1:
            reporter.warning(
                f"the labels {', '.join(map(repr, similar))} differ in white space or letter case alone, and are "
                "learnt as different ones; if they are one, spell them alike"
            )


FIELDS = ("label_name", "label")
"""Default fields for a label; the first one in a record is used."""


class TaskRecord(NamedTuple):
    """The label, or question and answers, of a record."""

    label: str | None = None
    asked: Answered | None = None
    candidates: tuple[str, ...] | None = None
    """Possible labels of this record, its own included; None: all labels."""


def read_records(
    file: TextFile, kind: Records, field: str | None = None, candidates: str | None = None
) -> list[TaskRecord]:
    """The label, or question and answers, of each record of a file.

    Args:
        field: the field that holds a label; None: the first of FIELDS present.
        candidates: the field that holds candidates, if any; each record of a file must have it, or
        none.
    Raises: DataError for a record without text, without an answer, or whose label is no string or
        integer; also if its candidates are no labels, or lack its own label.
    """
    of_label = FIELDS if field is None else (field,)
    fields = {"labels": of_label, "text": ()}.get(kind, QUESTION_FIELDS)
    task_records = list[TaskRecord]()
    read = (*fields, *([] if candidates is None else [candidates]))
    for number, record in enumerate(records(replace(file, fields=read)), 1):
        where = f"{file.path}, record {number}"
        text = "".join(record.blocks)
        if not text.strip():
            raise DataError(f"{where}: it has no text.")
        if kind == "labels":
            label = _label(where, record.fields, fields)
            task_records.append(
                TaskRecord(label, candidates=_candidates(where, record.fields, candidates, label))
            )
        elif kind == "text":
            task_records.append(TaskRecord())
        else:
            task_records.append(
                TaskRecord(asked=asked_of(where, text, record.fields, in_text=kind == "spans"))
            )
    lacking = [
        number
        for number, task_record in enumerate(task_records, 1)
        if task_record.candidates is None
    ]
    if lacking and len(lacking) < len(task_records):
        raise DataError(
            f"{file.path}, record {lacking[0]}: it has no field {candidates}, which others have."
        )
    return task_records


def _candidates(
    where: str, record: Mapping[str, Any], field: str | None, label: str
) -> tuple[str, ...] | None:
    """The labels among which a record's own is; None if it has no such field."""
    if field is None or field not in record:
        return None
    values = record[field]
    # not `isinstance`: True and False are whole numbers, too
    is_list = isinstance(values, list)
    if not is_list or not all(type(value) in (str, int) for value in values):
        raise DataError(
            f"{where}: expected a list of labels, texts or whole numbers, in its field {field}."
        )

    labels = tuple(map(str, values))
    if label not in labels:
        raise DataError(f"{where}: its own label {label!r} is missing in its field {field}.")
    if len(set(labels)) < len(labels):
        raise DataError(f"{where}: a label stands twice in its field {field}.")
    return labels


def _label(where: str, record: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The label of a record, in the first of these fields that it has."""
    value = next((record[field] for field in fields if field in record), None)
    is_label = isinstance(value, str | int) and not isinstance(value, bool)
    label = str(value)
    if not is_label or not label.strip():
        raise DataError(
            f"{where}: expected a label, a text or a whole number, in its field {' or '.join(fields)}. "
            "--label names another field; --records is for records with answers, or with their text alone."
        )
    require_unicode(f"{where}, label", label)
    return label


def label_names(tasks: Iterable[Iterable[str]]) -> list[str]:
    """The distinct labels of all tasks: those of the first task first, each task's in alphabetical
    order.

    >>> label_names([["Sports", "Business"], ["negative", "Business"]])
    ['Business', 'Sports', 'negative']
    """
    return list(dict.fromkeys(name for task in tasks for name in sorted(set(task))))


def dealt(names: Sequence[str], groups: int) -> dict[str, int]:
    """Deal labels at random (seed 0) into groups whose sizes differ by at most one.

    >>> dealt(["a", "b", "c"], 2)
    {'a': 1, 'b': 0, 'c': 0}
    """
    shuffled = np.random.default_rng(0).permutation(len(names))
    places = np.empty(len(names), np.int64)
    places[shuffled] = np.arange(len(names)) % groups
    return dict(zip(names, places.tolist(), strict=True))


class Tasks(NamedTuple):
    """Names of labels and of tasks; for each split, numbers of labels (-1: none) and of tasks."""

    labels: list[str]
    names: list[str]
    splits: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """int32 [documents] each."""
    asked: Mapping[str, list[Answered]]
    """Question and answers of each document, by split; empty if records have none."""
    candidates: Mapping[str, list[list[int] | None]]
    """Numbers of the possible labels of each document, None: all; only for splits with candidates.
    """


def read_tasks(inputs: Inputs, config: TokenizeConfig) -> Tasks:
    """Read the records of all files.

    Raises: DataError for an incomplete record, and for a label that does not occur in train.
    """
    records_of_split = _records(inputs, config)
    names = list(config.task_names)
    labels_of_task = _labels_by_task(records_of_split)
    labels = label_names(labels_of_task["train"].values())
    # a document without a label has number -1
    numbers: dict[str | None, int] = {None: -1}
    for number, label in enumerate(labels):
        numbers[label] = number

    group_of_label = dict[str, int]()
    groups = config.label_groups
    if groups is not None:
        if len(names) > 1:
            raise UsageError("--label-groups deals the labels of one folder: name one.")
        if groups > len(labels):
            raise UsageError(
                f"--label-groups {groups}: there are {len(labels)} labels, so at most as many tasks."
            )
        group_of_label = dealt(labels, groups)
        names = [f"group-{number:02d}" for number in range(1, groups + 1)]

    splits = {}
    questions = {}
    candidates = {}
    for split, by_task in records_of_split.items():
        _require_known_labels(split, labels_of_task)
        task_numbers = []
        task_records: list[TaskRecord] = []
        for number, part in enumerate(by_task.values()):
            for record in part:
                task_numbers.append(group_of_label.get(record.label or "", number))
                task_records.append(record)
        label_numbers = [numbers[record.label] for record in task_records]
        splits[split] = (np.array(label_numbers, np.int32), np.array(task_numbers, np.int32))
        questions[split] = [record.asked for record in task_records if record.asked is not None]
        if any(record.candidates for record in task_records):
            candidates[split] = _candidate_numbers(split, task_records, numbers)

    if config.candidates is not None and not candidates:
        raise DataError(f"--candidates {config.candidates}: no record has a field of that name.")
    return Tasks(labels, names, splits, questions, candidates)


def _labels_by_task(
    records: Mapping[str, Mapping[str, Sequence[TaskRecord]]],
) -> dict[str, dict[str, list[str]]]:
    """The labels of all records, by split and task."""
    labels: dict[str, dict[str, list[str]]] = {}
    for split, records_of_task in records.items():
        labels[split] = {}
        for task, task_records in records_of_task.items():
            names = [record.label for record in task_records if record.label is not None]
            labels[split][task] = names
    return labels


def _require_known_labels(split: str, labels: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Check the labels of a split.

    Raises: DataError for a label that train does not have.
    """
    for task, task_labels in labels[split].items():
        unknown = sorted(set(task_labels) - set(labels["train"][task]))
        if unknown:
            raise DataError(
                f"Task {task}: {split} has the label {unknown[0]!r}, which train has not."
            )


def _candidate_numbers(
    split: str, records: Sequence[TaskRecord], numbers: Mapping[str | None, int]
) -> list[list[int] | None]:
    """Numbers of the labels among which each record's is; None for a record without candidates.

    Raises: DataError for a candidate that is no label of train.
    """
    result: list[list[int] | None] = []
    for record in records:
        for name in record.candidates or ():
            if name not in numbers:
                raise DataError(f"{split} has the candidate {name!r}, which is no label of train.")
        names = record.candidates
        result.append(None if names is None else [numbers[name] for name in names])
    return result


def _records(inputs: Inputs, config: TokenizeConfig) -> dict[str, dict[str, list[TaskRecord]]]:
    """The records of each split, by task; an empty list if a task lacks the split."""
    records_of_split: dict[str, dict[str, list[TaskRecord]]] = {}
    for split in SPLITS:
        for file in text_files(inputs, config, split):
            records_of_task = records_of_split.setdefault(
                split, {name: [] for name in config.task_names}
            )
            # a task has the name of its folder
            task = Path(file.path).parent.name
            records_of_task[task] = read_records(
                file, config.records, config.label, config.candidates
            )
    return records_of_split


def texts_of(inputs: Inputs, config: TokenizeConfig, split: str) -> list[str]:
    """The texts of the records of a split."""
    return [
        "".join(record.blocks)
        for file in text_files(inputs, config, split)
        for record in records(file)
    ]
