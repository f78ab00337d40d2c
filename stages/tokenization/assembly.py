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
from stages.text.huggingface import PretrainedTokenizer
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
    paragraphs = documents = 0
    splits: dict[str, dict[str, Any]] = {}
    train: np.ndarray | None = None
    learned: dict[str, np.ndarray] = {}
    for split in SPLITS:
        own_shards = [shard for shard in shards if shard.split == split and shard.side != "source"]
        if own_shards:
            records = [_record(job, shard) for shard in own_shards]
            figures = splits[split] = _split_metrics(split, records)
            source = [shard for shard in shards if shard.split == split and shard.side == "source"]
            if source:  # its paragraphs and documents come before those of the target
                pairs = figures["documents"]
                figures |= _write_source(job, text, source)
                figures["empty_dropped"] = job.draft.record(SCANNED)["empty_dropped"][split]
                figures["longest"] = max(record["longest"] for record in records)
                sources, targets = (
                    text.spool.hashes(a, a + pairs) for a in (paragraphs, paragraphs + pairs)
                )
                # Not a plain sum, which would be the same for a pair and its reverse.
                hashes = {
                    "sources": sources,
                    "pairs": sources * np.uint64(0x9E3779B97F4A7C15) + targets,
                }
                if split == "train":
                    learned = hashes
                elif learned:
                    seen_in_train = {
                        name: np.isin(own_shards, learned[name])
                        for name, own_shards in hashes.items()
                    }
                    figures |= {
                        f"{name}_in_train": float(is_seen.mean())
                        for name, is_seen in seen_in_train.items()
                    }
                paragraphs = paragraphs + pairs
                documents = documents + pairs
            counts = np.zeros(text.tokenizer.vocabulary_size, np.int64)
            for shard in own_shards:
                ids = np.load(job.folder / scratch_file(shard, "ids"))
                counts += np.bincount(ids, minlength=len(counts))
            is_seen = counts > 0
            if isinstance(text.tokenizer, PretrainedTokenizer):
                counts[text.tokenizer.eos_id] -= figures["documents"]
                warn_of_control_tokens(split, counts, text.tokenizer, job.reporter)
            train = is_seen if split == "train" else train
            figures["types"] = int(np.count_nonzero(is_seen))
            if train is not None:
                figures["own_types"] = float(
                    np.count_nonzero(is_seen & ~train) / np.count_nonzero(is_seen)
                )
            _write_arrays(job, text, own_shards, records, paragraphs)
            with job.draft.add(names_file(split)).open("w", encoding="utf-8") as file:
                named = text.spool.names(documents, documents + figures["documents"])
                file.writelines(run.dumps() for run in named)
            paragraphs += figures["paragraphs"]
            documents += figures["documents"]
    return splits


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
    return {
        "source_tokens": len(ids),
        "source_unknown_rate": sum(record["unknown"] for record in records) / len(ids),
        "longest_source": max(record["longest"] for record in records),
    }


def _split_metrics(split: str, parts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    names = ("tokens", "documents", "paragraphs", "characters", "bytes", "words", *counted(()))
    sums: dict[str, Any] = {name: sum(part[name] for part in parts) for name in names}
    if not sums["tokens"]:
        raise DataError(f"The tokenizer makes no token of the text of {split}.")
    sums["unknown_rate"] = sum(part["unknown"] for part in parts) / sums["tokens"]
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
    task_records = read_tasks(job.inputs, job.config)
    asks = job.config.records in ("spans", "answers")
    for split, (labels, tasks) in task_records.splits.items():
        splits[split]["task_documents"] = np.bincount(
            tasks, minlength=len(task_records.names)
        ).tolist()
        arrays = {"tasks": tasks, **({} if asks else {"labels": labels})}
        if asks:
            texts = texts_of(job.inputs, job.config, split) if job.config.records == "spans" else []
            answers = answer_arrays(text.tokenizer, task_records.asked[split], texts)
            arrays |= answers._asdict()
            warn_of_unknown_questions(split, answers, text.tokenizer.unk_id, job.reporter)
            splits[split] |= answers.figures
            lines = (json.dumps(record.dumped()) + "\n" for record in task_records.asked[split])
            job.draft.add(answers_file(split)).write_text("".join(lines), "utf-8")
        if split in task_records.candidates:
            lines = (json.dumps(record) + "\n" for record in task_records.candidates[split])
            job.draft.add(candidates_file(split)).write_text("".join(lines), "utf-8")
        for name, values in arrays.items():
            write_array(job, f"{split}/{name}", len(values), values.dtype, _rows(values))
    kind = {} if job.config.records == "labels" else {"records": job.config.records}
    return {
        "examples": QUESTIONS if asks else DOCUMENTS,
        "tasks": task_records.names,
        "labels": task_records.labels,
        **kind,
    }


def _rows(values: np.ndarray) -> Callable[[int, int], np.ndarray]:
    """Function that reads rows [start, stop) of values in memory."""
    return lambda start, stop: values[start:stop]


def _saved_rows(
    job: Job[TokenizeConfig], shards: Sequence[TextShard], records: Sequence[Mapping[str, int]]
) -> "tuple[_SavedRows, _SavedRows, _SavedRows]":
    """Ids, and the tokens at which documents and paragraphs begin, with the end of the last."""
    *starts, end = accumulate((record["tokens"] for record in records), initial=0)

    def rows(name: str, count: str, shifts: Sequence[int], end: int | None = None) -> _SavedRows:
        files = [job.folder / scratch_file(shard, name) for shard in shards]
        return _SavedRows(files, [record[count] for record in records], shifts, end)

    ids = rows("ids", "tokens", [0] * len(shards))
    return (
        ids,
        rows("documents", "documents", starts, end),
        rows("paragraphs", "paragraphs", starts, end),
    )


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
        for file, shift, end in zip(
            self._files[first:], self._shifts[first:], self._stops[first:], strict=True
        ):
            if begin >= stop:
                break
            if begin < end:
                values = np.load(file, mmap_mode="r", allow_pickle=False)[
                    max(0, start - begin) : stop - begin
                ]
                parts.append(values + shift if shift else values)
            begin = end
        return np.concatenate([*parts, self._end] if stop > begin else parts)
