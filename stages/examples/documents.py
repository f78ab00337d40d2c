"""Documents with labels, and questions about documents: an example is a document, and tasks are
sets of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from stages.examples.batching import padded
from stages.examples.cutting import Cutting
from stages.examples.examples import BATCH_TOKENS, Batch, Block, Examples, HasTasks
from stages.examples.streams import Streams


@dataclass(kw_only=True)
class LabelledBatch(Batch):
    """Documents, padded at the end, each with its label."""

    labels: Tensor
    """Labels for the head, int64 [B]; subclasses may use another shape."""
    documents: np.ndarray
    """Numbers of the documents in the split, int64 [B]."""


@dataclass(frozen=True)
class Documents(Examples, HasTasks):
    """Example i is a document. Its inputs are `<eos>` and its tokens except the last, at most
    `cutting.context`.

    The rest is not read. The text as a whole is read as a stream that starts anew at each document.
    """

    ids: Any
    eos: int
    cutting: Cutting
    offsets: np.ndarray
    labels: np.ndarray
    """Label of each document of the split, int [D]."""
    task_numbers: np.ndarray
    """Task of each document of the split, int [D]."""
    chosen: np.ndarray
    """Documents that are examples, int64 [count]."""

    @classmethod
    def open(cls, split: Mapping[str, Any], eos: int, cutting: Cutting) -> Self:
        offsets, labels, tasks = (
            np.asarray(split[name][:]) for name in ("doc_offsets", "labels", "tasks")
        )
        return cls(split["ids"], eos, cutting, offsets, labels, tasks, np.arange(len(labels)))

    def tasks(self) -> Sequence[Examples]:
        return [
            self.of(np.flatnonzero(self.task_numbers == task))
            for task in range(int(self.task_numbers.max()) + 1)
        ]

    def of(self, documents: np.ndarray) -> Self:
        """The same split with some documents [n] as its examples."""
        return replace(self, chosen=documents)

    @property
    def documents(self) -> np.ndarray:
        return self.offsets

    @cached_property
    def lengths(self) -> np.ndarray:
        whole = np.diff(self.offsets)[self.chosen]
        return np.minimum(whole, self.cutting.context)

    def starts(self, which: np.ndarray) -> np.ndarray:
        return self.offsets[self.chosen[which]]

    def batch(self, which: np.ndarray) -> LabelledBatch:
        documents, lengths, starts = self.chosen[which], self.lengths[which], self.starts(which)
        spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        targets, mask = padded(
            [np.asarray(self.ids[start:stop]) for start, stop in spans], self.eos
        )
        shifted = np.concatenate((np.full((len(which), 1), self.eos), targets[:, :-1]), 1)
        inputs = np.where(mask, shifted, self.eos)
        places = np.where(mask, starts[:, None] + np.arange(mask.shape[1]), 0)
        return LabelledBatch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            places=places,
            mask=torch.from_numpy(mask),
            labels=torch.from_numpy(self.labels[documents].astype(np.int64)),
            documents=documents,
        )

    def blocks(self, start: int, stop: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Block]:
        return self._text.blocks(start, stop, batch_tokens)

    @cached_property
    def _text(self) -> Streams:
        return Streams(self.ids, self.eos, self.cutting._replace(by_document=True), self.offsets)


class Question(NamedTuple):
    """Tokens of a text, a question about it and the answer, int64 [n] each, without `<eos>` at the
    end.
    """

    text: np.ndarray
    question: np.ndarray
    answer: np.ndarray


@dataclass(kw_only=True)
class QuestionBatch(LabelledBatch):
    """Its labels are the first and the last position of each answer, int64 [B, 2].

    Both are 0 if the inputs do not contain the answer: the first input stands for "no answer".
    """

    answerable: Tensor
    """Inputs that may be part of an answer: those of the text, and the first, bool [B, L]."""
    questions: list[Question]

    @property
    def scored(self) -> Tensor:
        return self.answerable


@dataclass(frozen=True)
class Questions(Documents):
    """Example i is a document and its question: `<eos>`, the question and `<eos>` if there is one,
    then the text.

    The row is cut at the end to `cutting.context` inputs.
    """

    question_ids: Any
    question_offsets: np.ndarray
    answer_ids: Any
    answer_offsets: np.ndarray
    spans: np.ndarray
    """Range [start, stop) of each answer in the tokens of its text, int [D, 2]; -1: the answer is
    free text.
    """

    @classmethod
    def open(cls, split: Mapping[str, Any], eos: int, cutting: Cutting) -> Self:
        loaded = {name: np.asarray(split[name][:]) for name in split if not name.endswith("ids")}
        tasks = loaded["tasks"]
        return cls(
            ids=split["ids"],
            eos=eos,
            cutting=cutting,
            offsets=loaded["doc_offsets"],
            labels=np.full(len(tasks), -1),
            task_numbers=tasks,
            chosen=np.arange(len(tasks)),
            question_ids=split["question_ids"],
            question_offsets=loaded["question_offsets"],
            answer_ids=split["answer_ids"],
            answer_offsets=loaded["answer_offsets"],
            spans=np.stack((loaded["span_starts"], loaded["span_stops"]), 1),
        )

    @cached_property
    def _asked(self) -> np.ndarray:
        """Inputs before the text of each document, int64 [D]."""
        own = np.diff(self.question_offsets)
        return 1 + np.where(own > 1, own, 0)  # a question of only `<eos>` counts as none

    @cached_property
    def lengths(self) -> np.ndarray:
        whole = (self._asked + np.diff(self.offsets))[self.chosen]
        return np.minimum(whole, self.cutting.context)

    def batch(self, which: np.ndarray) -> QuestionBatch:
        documents, begins = self.chosen[which], self._asked[self.chosen[which]]
        lengths = self.lengths[which]
        rows, questions = list[np.ndarray](), list[Question]()
        for document, begin in zip(documents.tolist(), begins.tolist(), strict=True):
            text = np.asarray(self.ids[self.offsets[document] : self.offsets[document + 1]])
            question, answer = (
                np.asarray(ids[offsets[document] : offsets[document + 1] - 1]).astype(np.int64)
                for ids, offsets in (
                    (self.question_ids, self.question_offsets),
                    (self.answer_ids, self.answer_offsets),
                )
            )
            questions.append(Question(text[text != self.eos].astype(np.int64), question, answer))
            rows.append(
                np.concatenate(([self.eos], question, [self.eos] * (begin > 1), text, [self.eos]))
            )
        inputs, mask = padded(
            [row[:n] for row, n in zip(rows, lengths.tolist(), strict=True)], self.eos
        )
        targets, _ = padded(
            [row[1 : n + 1] for row, n in zip(rows, lengths.tolist(), strict=True)], self.eos
        )
        place = np.arange(mask.shape[1])
        labels = self.spans[documents] + begins[:, None] - [0, 1]
        read = (self.spans[documents, 0] >= 0) & (labels[:, 1] < lengths)
        return QuestionBatch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            places=np.zeros_like(targets),
            mask=torch.from_numpy(mask),
            labels=torch.from_numpy(np.where(read[:, None], labels, 0).astype(np.int64)),
            documents=documents,
            answerable=torch.from_numpy(mask & ((place == 0) | (place >= begins[:, None]))),
            questions=questions,
        )
