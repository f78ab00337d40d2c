"""Representations of a range of a split's tokens: datastores, queries and scores start here."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.windows import Window, document_windows, windows
from stages.models.devices import autocast

READ_AHEAD_IDS = 1 << 20
"""Ids taken from storage at a time: a stored chunk is read once, not once a batch."""


@dataclass
class EncodedBlock:
    """The contexts of tokens [start, stop), n of them: row r predicts token start + r.

    `hidden` [n, d] is f(c_t), `ffn_input` [n, d] is g(c_t), `targets` int64 [n] is x_t, all on
    the model's device.
    """

    start: int
    stop: int
    hidden: Tensor
    ffn_input: Tensor
    targets: Tensor

    def key(self, name: str) -> Tensor:
        """The representation that memory is searched with: `hidden` or `ffn-input`, [n, d]."""
        return {"hidden": self.hidden, "ffn-input": self.ffn_input}[name]


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
    batch_tokens: int = 8192,
    documents: np.ndarray | None = None,
) -> Iterator[EncodedBlock]:
    """Encode the contexts of tokens [start, stop) of a split; blocks follow without gap or overlap.

    Neighbouring windows of one length are encoded together, `batch_tokens` inputs at a time. A
    batch depends on the arguments alone, so the same call gives the same bytes.

    Args:
        model: a LanguageModel, on `device`; its `encode` is called without carried state.
        ids: the split's token ids [T], a NumPy or Zarr array of integers; only the range is read.
        eos: id of `<eos>`, the split's first input.
        context, stride: as in `windows`.
        precision: `fp32` or `bf16`.
        batch_tokens: inputs of a forward pass (at least one window).
        documents: int [D + 1], offsets of documents, if windows are to begin anew at each.
    """
    source = _Ids(ids, eos, limit=stop)
    if documents is None:
        wanted = windows(int(ids.shape[0]), context, stride, start, stop)
    else:
        wanted = document_windows(documents, context, stride, start, stop)
    for batch in _batches(wanted, max(1, batch_tokens // context)):
        inputs = np.stack([source.inputs(w.start, w.stop) for w in batch])
        with torch.no_grad(), autocast(device, precision):
            encoding = model.encode(torch.from_numpy(inputs).to(device))
        first, last = max(start, batch[0].scored_from), min(stop, batch[-1].stop)
        yield EncodedBlock(
            start=first,
            stop=last,
            hidden=_scored(encoding.hidden, batch, start, stop),
            ffn_input=_scored(encoding.ffn_input, batch, start, stop),
            targets=torch.from_numpy(source.tokens(first, last)).to(device),
        )


def _batches(wanted: list[Window], size: int) -> Iterator[list[Window]]:
    """Neighbouring windows of one length, at most `size` at a time."""
    for _, same in groupby(wanted, key=lambda w: w.stop - w.start):
        alike = list(same)
        for i in range(0, len(alike), size):
            yield alike[i : i + size]


def _scored(values: Tensor, batch: list[Window], start: int, stop: int) -> Tensor:
    """Rows of values [B, L, d] whose tokens the windows score inside [start, stop), [n, d]."""
    rows = [values[b, max(start, w.scored_from) - w.start : min(stop, w.stop) - w.start] for b, w in enumerate(batch)]
    return torch.cat(rows)


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
