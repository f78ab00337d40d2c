"""How a model reads the splits of a corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from stages.encoding.encode import EncodedBlock, encode_range
from stages.encoding.windows import Window, document_windows, windows
from stages.models.language_model import LanguageModel, State
from stages.models.windows import WindowSettings


class Places(NamedTuple):
    """Where the n tokens of a range stand: starts of their documents, int64 [n], and the windows that score them."""

    document_starts: np.ndarray
    windows: list[Window]


@dataclass(frozen=True)
class SplitReader:
    """Windows over the splits of a tokens artifact; for a backbone that carries state, its segments.

    `tokens` holds `<split>/ids` and `<split>/doc_offsets`; `by_document`: whether windows and state
    begin anew at every document.
    """

    tokens: Any
    eos: int
    windows: WindowSettings
    by_document: bool
    device: torch.device
    precision: str

    def encode(
        self, model: LanguageModel, split: str, start: int, stop: int, state: State = None
    ) -> Iterator[EncodedBlock]:
        """Encode tokens [start, stop) of a split with a model, going on from `state`."""
        return encode_range(
            model,
            self.tokens[f"{split}/ids"],
            self.eos,
            start,
            stop,
            context=self.windows.context,
            stride=self.windows.stride,
            device=self.device,
            precision=self.precision,
            documents=self._documents(split) if self.by_document else None,
            origins=self._documents(split) if model.config.reads_documents else None,
            state=state,
        )

    def places(self, split: str, start: int, stop: int) -> Places:
        """Where tokens [start, stop) stand."""
        documents = self._documents(split)
        context, stride = self.windows.context, self.windows.stride
        if self.by_document:
            scoring = document_windows(documents, context, stride, start, stop)
        else:
            scoring = windows(int(self.tokens[f"{split}/ids"].shape[0]), context, stride, start, stop)
        document = np.searchsorted(documents, np.arange(start, stop), side="right") - 1
        return Places(documents[document], scoring)

    def before(self, split: str, start: int, stop: int) -> np.ndarray:
        """The token before each of tokens [start, stop), int64; `<eos>` before the first of the split."""
        ids = np.asarray(self.tokens[f"{split}/ids"][max(0, start - 1) : stop - 1], np.int64)
        return ids if start else np.concatenate(([self.eos], ids))

    def _documents(self, split: str) -> np.ndarray:
        return np.asarray(self.tokens[f"{split}/doc_offsets"][:])
