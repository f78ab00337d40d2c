"""Documents with labels: an example is a document, and tasks are sets of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

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
    """Example i is a document. Its inputs are `<eos>` and its tokens except the last, at most `cutting.context`.

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
        offsets, labels, tasks = (np.asarray(split[name][:]) for name in ("doc_offsets", "labels", "tasks"))
        return cls(split["ids"], eos, cutting, offsets, labels, tasks, np.arange(len(labels)))

    def tasks(self) -> Sequence[Examples]:
        return [self.of(np.flatnonzero(self.task_numbers == task)) for task in range(int(self.task_numbers.max()) + 1)]

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
        targets, mask = padded([np.asarray(self.ids[start:stop]) for start, stop in spans], self.eos)
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
