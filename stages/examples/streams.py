"""A split as one stream of tokens: segments for training, and windows as a model reads them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from stages.examples.cutting import Cutting
from stages.examples.examples import BATCH_TOKENS, Batch, Block, Examples
from stages.examples.windows import Window, document_windows, positions_back, windows
from stages.text.tokens import READ_AHEAD_IDS


class ReadAhead:
    """Reads a split's ids before `limit`, int64, in long ranges: a stored chunk is read once, not
    once per batch.
    """

    def __init__(self, ids: Any, limit: int) -> None:
        self._ids = ids
        self._limit = limit
        self._first = 0
        self._tokens = np.empty(0, np.int64)

    def __call__(self, start: int, stop: int) -> np.ndarray:
        """x_start … x_{stop-1}."""
        if start < self._first or stop > self._first + len(self._tokens):
            ahead = max(stop, min(start + READ_AHEAD_IDS, self._limit))
            self._first = start
            self._tokens = np.asarray(self._ids[start:ahead]).astype(np.int64)
        return self._tokens[start - self._first : stop - self._first]


@dataclass(frozen=True)
class Streams(Examples):
    """Example i is segment i, of L tokens iL … iL+L-1; its inputs are the tokens one place earlier.

    The first input of the split is `eos`. A last segment shorter than L is not an example.
    """

    ids: Any
    eos: int
    cutting: Cutting
    offsets: Any = field(default=None, repr=False)
    """The first token of each document, and the end, int [D + 1]; None: the split is one."""

    @classmethod
    def open(cls, split: Mapping[str, Any], eos: int, cutting: Cutting) -> Self:
        return cls(split["ids"], eos, cutting, split["doc_offsets"])

    @cached_property
    def documents(self) -> np.ndarray:
        return np.array([0, self._total]) if self.offsets is None else np.asarray(self.offsets[:])

    @cached_property
    def lengths(self) -> np.ndarray:
        # A view of one number saves memory: a split may have millions of segments.
        return np.broadcast_to(np.int64(self.cutting.context), self._total // self.cutting.context)

    def starts(self, which: np.ndarray) -> np.ndarray:
        return which * self.cutting.context

    def batch(self, which: np.ndarray) -> Batch:
        starts = self.starts(which)
        places: np.ndarray = starts[:, None] + np.arange(self.cutting.context)

        # The input of a target is the token before it; the first has none, and reads `<eos>`.
        inputs = self.ids[np.maximum(places - 1, 0)].astype(np.int64)
        inputs[places == 0] = self.eos
        targets = self.ids[places].astype(np.int64)
        return Batch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            places=places,
            document_offset=self._offset(places),
        )

    def blocks(self, start: int, stop: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Block]:
        tokens = ReadAhead(self.ids, limit=stop)
        documents = np.array([0, self._total])
        fresh_starts: set[int] = set()
        if self.cutting.by_document:
            documents = self.documents
            fresh_starts = set(documents.tolist())

        for batch in self.cutting.batches(documents, start, stop, batch_tokens):
            # The first and the last window may score tokens outside the range.
            first = max(start, batch[0].scored_from)
            last = min(stop, batch[-1].stop)
            inputs = np.stack([self._inputs(tokens, window) for window in batch])
            places = np.stack([np.arange(window.start, window.stop) for window in batch])
            read = Batch(
                inputs=torch.from_numpy(inputs),
                targets=torch.from_numpy(tokens(first, last)),
                places=places,
                document_offset=self._offset(places),
            )

            rows = batch
            if self.cutting.way == "pooled":
                # A pooled window has one row, for the token after it.
                rows = [Window(w.scored_from, w.stop, w.scored_from) for w in batch]
            continues = batch[0].start not in fresh_starts
            yield Block(first, last, rows, read, continues)

    def windows(self, start: int, stop: int) -> list[Window]:
        """The windows that score tokens [start, stop), by context and stride; for a stream, its
        segments.
        """
        context = self.cutting.context
        stride = self.cutting.stride
        if self.cutting.by_document:
            return document_windows(self.documents, context, stride, start, stop)
        return windows(int(self.documents[-1]), context, stride, start, stop)

    def _inputs(self, tokens: ReadAhead, window: Window) -> np.ndarray:
        """`<eos>` and the tokens one place earlier than a window's."""
        if window.start > 0:
            return tokens(window.start - 1, window.stop - 1)
        return np.concatenate(([self.eos], tokens(0, window.stop - 1)))

    @property
    def _total(self) -> int:
        return int(self.ids.shape[0])

    def _offset(self, places: np.ndarray) -> Tensor | None:
        """Number of tokens of the same document before each place; None if layers do not need it."""
        if not self.cutting.document_offsets:
            return None
        return torch.from_numpy(positions_back(self.documents, places))
