"""Representations of a range of a split's tokens: datastores, queries and scores start here."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.encoding.windows import Window, document_windows, own_windows, positions_back, windows
from stages.models.devices import autocast
from stages.models.language_model import Encoding, State

BATCH_TOKENS = 8192
"""Inputs of a forward pass."""
READ_AHEAD_IDS = 1 << 20
"""Ids taken from storage at a time: a stored chunk is read once, not once a batch."""


@dataclass
class EncodedBlock:
    """The contexts of tokens [start, stop), n of them: row r predicts token start + r.

    `encoding` is what the `windows` were read as, [B, L, d], of a model that pools their last inputs alone, [B, 1, d];
    `targets` int64 [n] is x_t; all on the model's device.
    """

    start: int
    stop: int
    targets: Tensor
    windows: list[Window]
    encoding: Encoding

    @property
    def hidden(self) -> Tensor:
        """f(c_t), [n, d]."""
        return self.key("hidden")

    @property
    def state(self) -> State:
        """State that the backbone carries past the block; None: nothing."""
        return self.encoding.state

    def key(self, name: str) -> Tensor:
        """The representation that memory is searched with, `hidden` or `ffn-input`, [n, d]."""
        return self.of_tokens(self.encoding.key(name))

    def of_tokens(self, positions: Tensor) -> Tensor:
        """Select, from values of the windows' inputs [B, L, …], those whose inputs are contexts of the tokens, [n,
        …]."""
        return torch.cat([rows[self._scored(w)] for w, rows in zip(self.windows, positions, strict=True)])

    def context_keys(self, name: str) -> list[Tensor]:
        """For each window the representations of its inputs before the first token it scores here, [c, d]."""
        return [rows[: self._scored(w).start] for w, rows in zip(self.windows, self.encoding.key(name), strict=True)]

    def _scored(self, window: Window) -> slice:
        first, last = max(self.start, window.scored_from), min(self.stop, window.stop)
        return slice(first - window.start, last - window.start)


def encode_range(
    model: Any,
    ids: Any,
    eos: int,
    start: int,
    stop: int,
    *,
    context: int,
    stride: int,
    device: torch.device | str,
    precision: str,
    batch_tokens: int = BATCH_TOKENS,
    documents: np.ndarray | None = None,
    origins: np.ndarray | None = None,
    state: State = None,
) -> Iterator[EncodedBlock]:
    """Encode the contexts of tokens [start, stop) of a split; blocks follow without gap or overlap.

    Neighbouring windows of one length are encoded together, `batch_tokens` inputs at a time. A
    backbone that carries state reads the range as one stream instead; one that pools, a window of `context` inputs
    for each token. A batch depends on the arguments alone, so the same call gives the same bytes.

    Args:
        model: a LanguageModel, on `device`.
        ids: the split's token ids [T], a NumPy or Zarr array of integers; only the range is read.
        eos: id of `<eos>`, the split's first input.
        context, stride: as in `windows`; a stream has neither.
        precision: `fp32` or `bf16`.
        batch_tokens: inputs of a forward pass (at least one window).
        documents: int [D + 1], offsets of documents, if windows or the state are to begin anew at each.
        origins: the same offsets, of a model that reads documents (`config.reads_documents`); None: the split is one.
        state: what the backbone carries past token `start` - 1; None: it begins anew there.
    """
    source = _Ids(ids, eos, limit=stop)
    total = int(ids.shape[0])
    if model.config.carries_state:
        batches = _pieces(start, stop, batch_tokens, documents)
    elif model.config.pools:
        batches = _batches(own_windows(context, start, stop, documents), max(1, batch_tokens // context))
    elif documents is None:
        batches = _batches(windows(total, context, stride, start, stop), max(1, batch_tokens // context))
    else:
        wanted = document_windows(documents, context, stride, start, stop)
        batches = _batches(wanted, max(1, batch_tokens // context))
    begins = set() if documents is None else set(documents.tolist())
    for batch in batches:
        inputs = np.stack([source.inputs(w.start, w.stop) for w in batch])
        with torch.no_grad(), autocast(device, precision):
            carried = None if batch[0].start in begins else state
            offset = _document_offset(batch, origins, device)
            encoding = model.encode(torch.from_numpy(inputs).to(device), carried, offset)
        state = encoding.state
        first, last = max(start, batch[0].scored_from), min(stop, batch[-1].stop)
        targets = torch.from_numpy(source.tokens(first, last)).to(device)
        rows = [Window(w.scored_from, w.stop, w.scored_from) for w in batch] if model.config.pools else batch
        yield EncodedBlock(first, last, targets, rows, encoding)


def _document_offset(batch: list[Window], origins: np.ndarray | None, device: torch.device | str) -> Tensor | None:
    """Positions of its own document before each input of some windows, int64 [B, L]; of None nothing."""
    if origins is None:
        return None
    offset = np.stack([positions_back(origins, np.arange(w.start, w.stop)) for w in batch])
    return torch.from_numpy(offset).to(device)


def _batches(wanted: list[Window], size: int) -> Iterator[list[Window]]:
    """Neighbouring windows of one length, at most `size` at a time."""
    for _, same in groupby(wanted, key=lambda w: w.stop - w.start):
        alike = list(same)
        for i in range(0, len(alike), size):
            yield alike[i : i + size]


def _pieces(start: int, stop: int, size: int, documents: np.ndarray | None) -> Iterator[list[Window]]:
    """A stream in pieces of at most `size` tokens, none of which goes past the start of a document."""
    borders = [] if documents is None else documents[(documents > start) & (documents < stop)].tolist()
    for begin, end in pairwise(dict.fromkeys([start, *borders, stop])):
        for first in range(begin, end, size):
            yield [Window(first, min(first + size, end), first)]


class _Ids:
    """Reads a split's ids before `limit` in long stretches; gives inputs and tokens as int64."""

    def __init__(self, ids: Any, eos: int, limit: int) -> None:
        self._ids, self._eos, self._limit = ids, eos, limit
        self._first = 0
        self._held = np.empty(0, np.int64)

    def tokens(self, start: int, stop: int) -> np.ndarray:
        """x_start … x_{stop-1}."""
        if start < self._first or stop > self._first + len(self._held):
            ahead = max(stop, min(start + READ_AHEAD_IDS, self._limit))
            self._first, self._held = start, np.asarray(self._ids[start:ahead]).astype(np.int64)
        return self._held[start - self._first : stop - self._first]

    def inputs(self, start: int, stop: int) -> np.ndarray:
        """Inputs start … stop-1, which are `<eos>` and the tokens one place earlier."""
        if start > 0:
            return self.tokens(start - 1, stop - 1)
        return np.concatenate(([self._eos], self.tokens(0, stop - 1)))
