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
from stages.examples.examples import BATCH_TOKENS, Batch, Block, Examples
from stages.examples.streams import Streams


@dataclass(kw_only=True)
class LabelledBatch(Batch):
    """Documents, padded at the end, each with its label."""

    labels: Tensor
    """Labels for the head, int64 [B]; subclasses may use another shape."""
    documents: np.ndarray
    """Numbers of the documents in the split, int64 [B]."""

    def texts(self, room: int, eos: int) -> list[np.ndarray]:
        """The tokens of each document without `<eos>`, at most `room`, and its question behind."""
        assert self.mask is not None
        texts = []
        for row, is_counted in zip(self.targets.cpu(), self.mask.cpu(), strict=True):
            text = row[is_counted].numpy()
            texts.append(text[text != eos][:room])
        return texts

    def answers(self, of_labels: Sequence[Sequence[int]], longest: int) -> list[np.ndarray]:
        """The tokens of each document's answer.

        Args:
            of_labels: tokens of the answer of each label.
            longest: maximum tokens of an answer that a document has of its own.
        """
        return [np.array(of_labels[label]) for label in self.labels.tolist()]


def labelled(batch: Batch) -> LabelledBatch:
    """A batch of documents, which all methods for tasks read."""
    assert isinstance(batch, LabelledBatch), "a method for tasks reads documents"
    return batch


@dataclass(frozen=True)
class Documents(Examples):
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
        offsets = np.asarray(split["doc_offsets"][:])
        labels = np.asarray(split["labels"][:])
        tasks = np.asarray(split["tasks"][:])
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
        documents = self.chosen[which]
        starts = self.starts(which)
        stops = starts + self.lengths[which]
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        texts = [np.asarray(self.ids[start:stop]) for start, stop in spans]
        targets, mask = padded(texts, self.eos)
        num_documents, width = mask.shape

        # Inputs are the targets one place earlier, after an `<eos>`.
        first_inputs = np.full((num_documents, 1), self.eos)
        shifted = np.concatenate((first_inputs, targets[:, :-1]), 1)
        inputs = np.where(mask, shifted, self.eos)

        offsets = starts[:, None] + np.arange(width)
        places = np.where(mask, offsets, 0)
        labels = self.labels[documents].astype(np.int64)
        return LabelledBatch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            places=places,
            mask=torch.from_numpy(mask),
            labels=torch.from_numpy(labels),
            documents=documents,
        )

    def blocks(self, start: int, stop: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Block]:
        return self._text.blocks(start, stop, batch_tokens)

    @cached_property
    def _text(self) -> Streams:
        return Streams(self.ids, self.eos, self.cutting._replace(by_document=True), self.offsets)


def documents_of(examples: Examples) -> Documents:
    """The documents of a task, which all methods for tasks learn from."""
    assert isinstance(examples, Documents), "a task has documents"
    return examples


class QuestionTokens(NamedTuple):
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
    questions: list[QuestionTokens]

    @property
    def scored(self) -> Tensor:
        return self.answerable

    def texts(self, room: int, eos: int) -> list[np.ndarray]:
        texts = []
        for document in self.questions:
            question = document.question[:room]
            # The text is cut before its question is, which says what is asked of it.
            text = document.text[: room - len(question)]
            texts.append(np.concatenate((text, question)))
        return texts

    def answers(self, of_labels: Sequence[Sequence[int]], longest: int) -> list[np.ndarray]:
        return [document.answer[:longest] for document in self.questions]


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
        """The questions of a split. Ids stay where they are, and the rest is read."""
        loaded = {name: np.asarray(split[name][:]) for name in split if not name.endswith("ids")}
        tasks = loaded["tasks"]
        num_documents = len(tasks)
        return cls(
            ids=split["ids"],
            eos=eos,
            cutting=cutting,
            offsets=loaded["doc_offsets"],
            labels=np.full(num_documents, -1),
            task_numbers=tasks,
            chosen=np.arange(num_documents),
            question_ids=split["question_ids"],
            question_offsets=loaded["question_offsets"],
            answer_ids=split["answer_ids"],
            answer_offsets=loaded["answer_offsets"],
            spans=np.stack((loaded["span_starts"], loaded["span_stops"]), 1),
        )

    @cached_property
    def _text_starts(self) -> np.ndarray:
        """Inputs before the text of each document, int64 [D]."""
        question_lengths = np.diff(self.question_offsets)
        # A question of only `<eos>` counts as none.
        return 1 + np.where(question_lengths > 1, question_lengths, 0)

    @cached_property
    def lengths(self) -> np.ndarray:
        whole = (self._text_starts + np.diff(self.offsets))[self.chosen]
        return np.minimum(whole, self.cutting.context)

    def batch(self, which: np.ndarray) -> QuestionBatch:
        documents = self.chosen[which]
        text_starts = self._text_starts[documents]
        lengths = self.lengths[which]

        questions = list[QuestionTokens]()
        inputs_of_rows = list[np.ndarray]()
        targets_of_rows = list[np.ndarray]()
        for document, length in zip(documents.tolist(), lengths.tolist(), strict=True):
            start = self.offsets[document]
            stop = self.offsets[document + 1]
            text = np.asarray(self.ids[start:stop])
            question = _without_last(self.question_ids, self.question_offsets, document)
            answer = _without_last(self.answer_ids, self.answer_offsets, document)
            words = text[text != self.eos].astype(np.int64)
            questions.append(QuestionTokens(words, question, answer))

            # Targets are the inputs one place later.
            row = self._row(document, text, question)
            inputs_of_rows.append(row[:length])
            targets_of_rows.append(row[1 : length + 1])
        inputs, mask = padded(inputs_of_rows, self.eos)
        targets, _ = padded(targets_of_rows, self.eos)

        # Answers count from the text; labels count from the first input, and name the last token.
        labels = self.spans[documents] + text_starts[:, None] - [0, 1]
        has_span = self.spans[documents, 0] >= 0
        is_read = has_span & (labels[:, 1] < lengths)
        labels = np.where(is_read[:, None], labels, 0)

        # Position 0 stands for no answer.
        columns = np.arange(mask.shape[1])
        is_text = columns >= text_starts[:, None]
        answerable = mask & ((columns == 0) | is_text)
        return QuestionBatch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            places=np.zeros_like(targets),
            mask=torch.from_numpy(mask),
            labels=torch.from_numpy(labels.astype(np.int64)),
            documents=documents,
            answerable=torch.from_numpy(answerable),
            questions=questions,
        )

    def _row(self, document: int, text: np.ndarray, question: np.ndarray) -> np.ndarray:
        """All inputs of a document, and one more `<eos>` as the last target."""
        # The question ends with `<eos>`, if there is one.
        question_end = [self.eos] if self._text_starts[document] > 1 else []
        return np.concatenate(([self.eos], question, question_end, text, [self.eos]))


def _without_last(ids: Any, offsets: np.ndarray, number: int) -> np.ndarray:
    """Tokens of a question or an answer without the `<eos>` at its end, int64 [n]."""
    return np.asarray(ids[offsets[number] : offsets[number + 1] - 1]).astype(np.int64)
