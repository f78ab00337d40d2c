"""Questions about documents: a row is the question and then the text, which may contain the answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from stages.examples.batching import padded
from stages.examples.cutting import Cutting
from stages.examples.documents import Documents, LabelledBatch


class Question(NamedTuple):
    """Tokens of a text, a question about it and the answer, int64 [n] each, without `<eos>` at the end."""

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
    """Example i is a document and its question: `<eos>`, the question and `<eos>` if there is one, then the text.

    The row is cut at the end to `cutting.context` inputs.
    """

    question_ids: Any
    question_offsets: np.ndarray
    answer_ids: Any
    answer_offsets: np.ndarray
    spans: np.ndarray
    """Range [start, stop) of each answer in the tokens of its text, int [D, 2]; -1: the answer is free text."""

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
        questions = [self._question(document) for document in documents.tolist()]
        rows = [
            np.concatenate(([self.eos], one.question, [self.eos] * (begin > 1), self._tokens(document), [self.eos]))
            for document, begin, one in zip(documents.tolist(), begins.tolist(), questions, strict=True)
        ]
        inputs, mask = padded([row[:n] for row, n in zip(rows, lengths.tolist(), strict=True)], self.eos)
        targets, _ = padded([row[1 : n + 1] for row, n in zip(rows, lengths.tolist(), strict=True)], self.eos)
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

    def _tokens(self, document: int) -> np.ndarray:
        return np.asarray(self.ids[self.offsets[document] : self.offsets[document + 1]])

    def _question(self, document: int) -> Question:
        text = self._tokens(document)
        parts = (
            np.asarray(ids[offsets[document] : offsets[document + 1] - 1]).astype(np.int64)
            for ids, offsets in ((self.question_ids, self.question_offsets), (self.answer_ids, self.answer_offsets))
        )
        return Question(text[text != self.eos].astype(np.int64), *parts)
