"""Rows beside an open book: the model alone in windows as short as the book leaves, and in whole
ones; and what the report says of the book.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from stages.encoding.scoring import score_blocks
from stages.evaluation.range_reader import RangeReader, RangeResult
from stages.evaluation.score_range import RangeScores, scores_alone
from stages.models.computing import Stopwatch
from stages.open_book.reader import BookReader
from stages.open_book.settings import OPEN_BOOK
from stages.reports.fields import PLAIN, SHORTER


class _Choices(NamedTuple):
    """Passages of the windows that score a range."""

    columns: dict[str, torch.Tensor]
    """The first columns of `BOOK_COLUMNS` of `figures.token_scores`, [n] each."""
    record: dict[str, int]


def with_rows_beside_book(
    scores: RangeScores, reader: RangeReader, result: RangeResult
) -> RangeScores:
    """The scores of a range with those of the rows beside an open book; unchanged without one."""
    book = reader.split_reader
    if not isinstance(book, BookReader):
        return scores
    scored_range = result.scored_range
    counted = scored_range.counted_rows
    split = scored_range.split
    start = scored_range.lm.start
    stop = scored_range.lm.stop
    rows = []
    seconds = []
    for split_reader in (book.closed, book.plain):
        watch = Stopwatch(split_reader.device)
        blocks = split_reader.encode(reader.model, split, start, stop)
        lm = score_blocks(reader.model, blocks, hidden_rows=scored_range.counted)
        rows.append(scores_alone(reader.model, lm, counted))
        seconds.append(watch.lap())

    choices = _choices(book, split, start, stop)
    columns = {name: column[counted] for name, column in choices.columns.items()}
    columns |= {"logp_shorter": rows[0].log_p, "logp_plain": rows[1].log_p}
    whole = book.plain.places(split, start, stop).windows
    inputs = sum(window.stop - window.start for window in whole)
    record = {**scores.record, "open_book": {**choices.record, "inputs_plain": inputs}}
    return replace(scores, beside=rows, beside_seconds=seconds, columns=columns, record=record)


def _choices(reader: BookReader, split: str, start: int, stop: int) -> _Choices:
    """Passages of the windows that score tokens [start, stop)."""
    windows = reader.stride_windows(split, start, stop)
    opened = reader.open_at(split, windows)
    assert opened is not None and reader.book is not None
    best = opened.chosen.numbers[:, 0]
    documents = np.where(best < 0, -1, reader.book.passages.documents(best.clip(min=0)))
    by_window = {
        "passage": best.astype(np.int32),
        "passage_document": documents.astype(np.int32),
        "passage_score": opened.chosen.scores[:, 0],
    }
    tokens = [min(stop, w.stop) - max(start, w.scored_from) for w in windows]
    columns = {}
    for name, values in by_window.items():
        columns[name] = torch.from_numpy(np.repeat(values, tokens)).to(reader.device)

    shorter = sum(window.stop - window.start for window in windows)
    passages = reader.passage_tokens(opened, len(windows))
    record = {
        "strides": len(windows),
        "without_passage": int((best < 0).sum()),
        "excluded": int(opened.excluded.sum()),
        "inputs": shorter + sum(len(passage) for passage in passages),
        "inputs_shorter": shorter,
    }
    return _Choices(columns, record)


def book_figures(
    settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]], book: str, tokens: int
) -> dict[str, Any]:
    """The entry `open_book` of `metrics.json`.

    Args:
        settings: of the book.
        records: of the scored split's shards.
        book: reference of its tokens.
        tokens: number of tokens of the split.
    """
    sums = {}
    for name in records[0]["open_book"]:
        sums[name] = sum(record["open_book"][name] for record in records)
    read = {name: sums.pop(f"inputs{end}") for name, end in READ.items()}
    return {
        "book": book,
        **settings,
        **sums,
        "forward_tokens": {name: inputs / tokens for name, inputs in read.items()},
    }


READ = {OPEN_BOOK: "", SHORTER: "_shorter", PLAIN: "_plain"}
"""Ends of the names of counts in records, by the row whose inputs they count."""
