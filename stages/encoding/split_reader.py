"""How a model reads the splits of a corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from stages.encoding.encode import EncodedBlock, encode
from stages.examples.corpus import Corpus
from stages.examples.cutting import Cutting
from stages.examples.windows import Window, document_windows, windows
from stages.models.language_model import LanguageModel, State
from stages.models.windows import WindowSettings


class Places(NamedTuple):
    """Where the n tokens of a range stand: starts of their documents, int64 [n], and the windows that score them."""

    document_starts: np.ndarray
    windows: list[Window]


@dataclass(frozen=True)
class SplitReader:
    """Windows over the splits of a corpus; for a backbone that carries state, its segments.

    `by_document`: whether windows and state begin anew at every document.
    """

    corpus: Corpus
    windows: WindowSettings
    by_document: bool
    device: torch.device
    precision: str

    def encode(
        self, model: LanguageModel, split: str, start: int, stop: int, state: State = None
    ) -> Iterator[EncodedBlock]:
        """Encode tokens [start, stop) of a split with a model, going on from `state`."""
        examples = self.corpus.examples(split, model.config.cutting(self.windows, self.by_document))
        return encode(model, examples.blocks(start, stop), state, self.precision)

    def places(self, split: str, start: int, stop: int) -> Places:
        """Where tokens [start, stop) stand."""
        context, stride = self.windows.context, self.windows.stride
        documents = self.corpus.examples(split, Cutting("windows", context, stride)).documents
        if self.by_document:
            scoring = document_windows(documents, context, stride, start, stop)
        else:
            scoring = windows(int(documents[-1]), context, stride, start, stop)
        document = np.searchsorted(documents, np.arange(start, stop), side="right") - 1
        return Places(documents[document], scoring)

    def before(self, split: str, start: int, stop: int) -> np.ndarray:
        """The token before each of tokens [start, stop), int64; `<eos>` before the first of the split."""
        ids = self.corpus.arrays[f"{split}/ids"]
        before = np.asarray(ids[max(0, start - 1) : stop - 1], np.int64)
        return before if start else np.concatenate(([self.corpus.eos], before))
