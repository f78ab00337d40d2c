"""Assembles the shards of a split: its figures, arrays, and names of documents."""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.stage import Job
from stages.errors import DataError
from stages.examples import DOCUMENTS, QUESTIONS
from stages.examples.form import answers_file, candidates_file
from stages.text.config import TokenizeConfig
from stages.text.documents import names_file
from stages.text.form import counted
from stages.text.tokens import SPLITS
from stages.tokenization.control_tokens import warn_of_control_tokens
from stages.tokenization.encoded import SpooledText, scratch_file, words_key
from stages.tokenization.spooling import SCANNED, TextShard
from stages.tokenization.tasks import answer_arrays, read_tasks, texts_of, warn_of_unknown_questions

ROW_BYTES = 2**21
"""Bytes of an array in one Zarr shard. Few, so that a large corpus takes no more memory than a
small one.
"""


def assemble(
    job: Job[TokenizeConfig], text: SpooledText, shards: Sequence[TextShard]
) -> dict[str, dict[str, Any]]:
    """Write the arrays and names of every split; returns the figures of each.

    Raises: DataError for a split without a token.
    """
    splits: dict[str, dict[str, Any]] = {}
    train_hashes: dict[str, np.ndarray] = {}
    train_types: np.ndarray | None = None
    # paragraphs and documents of the spool that come before the split
    paragraphs = 0
    documents = 0
    for split in SPLITS:
        split_shards = [shard for shard in shards if shard.split == split]
        target_shards = [shard for shard in split_shards if shard.side != "source"]
        source_shards = [shard for shard in split_shards if shard.side == "source"]
        if not target_shards:
            continue
        records = [_record(job, shard) for shard in target_shards]
        figures = _split_metrics(split, records)

        if source_shards:
            num_pairs = figures["documents"]
            figures |= _write_source(job, text, source_shards)
            figures["empty_dropped"] = job.draft.record(SCANNED)["empty_dropped"][split]
            figures["longest"] = max(record["longest"] for record in records)
            hashes = _pair_hashes(text, paragraphs, num_pairs)
            if split == "train":
                train_hashes = hashes
            elif train_hashes:
                figures |= _shares_in_train(hashes, train_hashes)
            # the source's paragraphs and documents come before those of the target
            paragraphs += num_pairs
            documents += num_pairs

        types = _types(job, text, target_shards, figures["documents"])
        if split == "train":
            train_types = types
        figures["types"] = int(np.count_nonzero(types))
        if train_types is not None:
            num_own_types = np.count_nonzero(types & ~train_types)
            figures["own_types"] = float(num_own_types / np.count_nonzero(types))

        _write_arrays(job, text, target_shards, records, paragraphs)
        with job.draft.add(names_file(split)).open("w", encoding="utf-8") as file:
            names = text.spool.names(documents, documents + figures["documents"])
            file.writelines(run.dumps() for run in names)
        paragraphs += figures["paragraphs"]
        documents += figures["documents"]
        splits[split] = figures
    return splits


def _pair_hashes(text: SpooledText, first: int, num_pairs: int) -> dict[str, np.ndarray]:
    """Hashes of the sources of a split's pairs and of the pairs, uint64 [P] each.

    `first`: number of the first source among the paragraphs of the spool.
    """
    last = first + num_pairs
    sources = text.spool.hashes(first, last)
    targets = text.spool.hashes(last, last + num_pairs)
    # Not a plain sum, which would be the same for a pair and its reverse.
    pairs = sources * np.uint64(0x9E3779B97F4A7C15) + targets
    return {"sources": sources, "pairs": pairs}


def _shares_in_train(
    hashes: Mapping[str, np.ndarray], train_hashes: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Shares of the sources, and of the pairs, of a split that train has, too."""
    shares = {}
    for name, split_hashes in hashes.items():
        is_in_train = np.isin(split_hashes, train_hashes[name])
        shares[f"{name}_in_train"] = float(is_in_train.mean())
    return shares


def _types(
    job: Job[TokenizeConfig], text: SpooledText, shards: Sequence[TextShard], documents: int
) -> np.ndarray:
    """Mask of the token types that occur in a split, bool [V]; warns of control tokens in its text."""
    tokenizer = text.tokenizer
    counts = np.zeros(tokenizer.vocabulary_size, np.int64)
    for shard in shards:
        ids = np.load(job.folder / scratch_file(shard, "ids"))
        counts += np.bincount(ids, minlength=len(counts))
    types = counts > 0

    if tokenizer.control_tokens:
        # each document ends with `<eos>`, which is not of its text
        counts[tokenizer.eos_id] -= documents
        warn_of_control_tokens(shards[0].split, counts, tokenizer, job.reporter)
    return types


def _record(job: Job[TokenizeConfig], shard: TextShard) -> dict[str, Any]:
    """Figures of a shard's ids, and of its words if the text was split into words first."""
    split = words_key(shard)
    return (job.draft.record(split) if job.draft.done(split) else {}) | job.draft.record(shard.key)


def _write_source(
    job: Job[TokenizeConfig], text: SpooledText, shards: Sequence[TextShard]
) -> dict[str, Any]:
    """Write the source side of a split's pairs; returns its figures."""
    records = [job.draft.record(shard.key) for shard in shards]
    split = shards[0].split
    ids, offsets, _ = _saved_rows(job, shards, records)
    write_array(job, f"{split}/source_ids", len(ids), text.tokenizer.dtype, ids.read)
    write_array(job, f"{split}/source_offsets", len(offsets), np.dtype(np.int64), offsets.read)

    num_tokens = len(ids)
    num_unknown = sum(record["unknown"] for record in records)
    return {
        "source_tokens": num_tokens,
        "source_unknown_rate": num_unknown / num_tokens,
        "longest_source": max(record["longest"] for record in records),
    }


def _split_metrics(split: str, parts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Sums of the records of a split's shards."""
    names = ("tokens", "documents", "paragraphs", "characters", "bytes", "words", *counted(()))
    sums: dict[str, Any] = {}
    for name in names:
        sums[name] = sum(part[name] for part in parts)
    if not sums["tokens"]:
        raise DataError(f"The tokenizer makes no token of the text of {split}.")
    num_unknown = sum(part["unknown"] for part in parts)
    sums["unknown_rate"] = num_unknown / sums["tokens"]
    return sums


def _write_arrays(
    job: Job[TokenizeConfig],
    text: SpooledText,
    shards: Sequence[TextShard],
    records: Sequence[Mapping[str, int]],
    paragraphs_before: int,
) -> None:
    """Write the arrays of one split.

    `paragraphs_before`: number of paragraphs in the spool before this split.
    """
    ids, documents, paragraphs = _saved_rows(job, shards, records)
    last = len(paragraphs) - 1

    def ends(a: int, b: int) -> np.ndarray:
        return paragraphs.read(a + 1, b + 1)

    def hashes(a: int, b: int) -> np.ndarray:
        return text.spool.hashes(paragraphs_before + a, paragraphs_before + b)

    split = shards[0].split
    write_array(job, f"{split}/ids", len(ids), text.tokenizer.dtype, ids.read)
    write_array(job, f"{split}/doc_offsets", len(documents), np.dtype(np.int64), documents.read)
    write_array(job, f"{split}/paragraph_ends", last, np.dtype(np.int64), ends)
    write_array(job, f"{split}/paragraph_hashes", last, np.dtype(np.uint64), hashes)


def array_layout(name: str, rows: int, dtype: np.dtype) -> ArrayLayout:
    """Layout of an array of tokens, in shards of ROW_BYTES."""
    return ArrayLayout(f"tokens.zarr/{name}", (rows,), dtype, ROW_BYTES // dtype.itemsize)


def write_array(
    job: Job[TokenizeConfig],
    name: str,
    rows: int,
    dtype: np.dtype,
    read: Callable[[int, int], np.ndarray],
) -> None:
    """Write one array of tokens, Zarr shard by Zarr shard; `read(start, stop)` gives rows [start,
    stop).
    """
    layout = array_layout(name, rows, dtype)
    job.draft.create(layout)
    for shard in range(layout.shards):
        # One commit per shard: arrays of any size take the memory of one shard.
        key = f"{name.replace('/', '-')}-{shard:05d}"
        if not job.draft.done(key):
            inside = layout.rows(shard)
            job.draft.write(
                layout, shard, read(inside.start, inside.stop).astype(dtype, copy=False)
            )
            job.draft.commit(key)


def write_tasks(
    job: Job[TokenizeConfig], text: SpooledText, splits: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Write the label, or question and answer, and the task of every document; returns their
    metrics.

    `splits`: figures of the splits; the numbers of documents of each task are added to them.
    """
    kind = job.config.records
    has_answers = kind in ("spans", "answers")
    task_records = read_tasks(job.inputs, job.config)
    for split, (labels, tasks) in task_records.splits.items():
        documents_of_task = np.bincount(tasks, minlength=len(task_records.names))
        splits[split]["task_documents"] = documents_of_task.tolist()
        arrays = {"tasks": tasks}
        if has_answers:
            questions = task_records.asked[split]
            texts = texts_of(job.inputs, job.config, split) if kind == "spans" else []
            answers = answer_arrays(text.tokenizer, questions, texts)
            arrays |= answers._asdict()
            warn_of_unknown_questions(split, answers, text.tokenizer.unk_id, job.reporter)
            splits[split] |= answers.figures
            _write_lines(job, answers_file(split), (record.dumped() for record in questions))
        else:
            arrays["labels"] = labels
        if split in task_records.candidates:
            _write_lines(job, candidates_file(split), task_records.candidates[split])
        for name, values in arrays.items():
            write_array(job, f"{split}/{name}", len(values), values.dtype, _rows(values))

    metrics = {
        "examples": QUESTIONS if has_answers else DOCUMENTS,
        "tasks": task_records.names,
        "labels": task_records.labels,
    }
    # labels are the usual kind, and are not named
    if kind != "labels":
        metrics["records"] = kind
    return metrics


def _write_lines(job: Job[TokenizeConfig], name: str, records: Iterable[Any]) -> None:
    """Write records as lines of JSON."""
    lines = [json.dumps(record) + "\n" for record in records]
    job.draft.add(name).write_text("".join(lines), "utf-8")


def _rows(values: np.ndarray) -> Callable[[int, int], np.ndarray]:
    """Function that reads rows [start, stop) of values in memory."""
    return lambda start, stop: values[start:stop]


def _saved_rows(
    job: Job[TokenizeConfig], shards: Sequence[TextShard], records: Sequence[Mapping[str, int]]
) -> "tuple[_SavedRows, _SavedRows, _SavedRows]":
    """Ids, and the tokens at which documents and paragraphs begin, with the end of the last."""
    # tokens before each shard, and of all
    *starts, end = accumulate((record["tokens"] for record in records), initial=0)

    def rows(name: str, count: str, shifts: Sequence[int], end: int | None = None) -> _SavedRows:
        files = [job.folder / scratch_file(shard, name) for shard in shards]
        counts = [record[count] for record in records]
        return _SavedRows(files, counts, shifts, end)

    ids = rows("ids", "tokens", [0] * len(shards))
    documents = rows("documents", "documents", starts, end)
    paragraphs = rows("paragraphs", "paragraphs", starts, end)
    return ids, documents, paragraphs


class _SavedRows:
    """Values of files, one file after another, and then `end`. A read opens only the files that it
    needs.

    Args:
        counts: number of values of each file.
        shifts: number that is added to the values of each file; 0: none.
    """

    def __init__(
        self,
        files: Sequence[Path],
        counts: Iterable[int],
        shifts: Sequence[int],
        end: int | None = None,
    ) -> None:
        self._files = files
        self._shifts = shifts
        self._end = [] if end is None else [end]
        self._stops = list(accumulate(counts))

    def __len__(self) -> int:
        return self._stops[-1] + len(self._end)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), copied."""
        first = bisect_right(self._stops, start)
        parts = list[np.ndarray]()
        begin = self._stops[first - 1] if first else 0
        for number in range(first, len(self._files)):
            if begin >= stop:
                break
            end = self._stops[number]
            if begin < end:
                rows = np.load(self._files[number], mmap_mode="r", allow_pickle=False)
                values = rows[max(0, start - begin) : stop - begin]
                shift = self._shifts[number]
                parts.append(values + shift if shift else values)
            begin = end
        # the end of the last follows all rows
        if stop > begin:
            return np.concatenate([*parts, self._end])
        return np.concatenate(parts)
