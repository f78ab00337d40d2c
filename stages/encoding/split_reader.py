"""How a model reads the splits of a corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from stages.encoding.encode import EncodedBlock, encode
from stages.examples.corpus import Corpus
from stages.examples.cutting import Cutting, WindowSettings
from stages.examples.examples import Block
from stages.examples.windows import Window
from stages.models.language_model import LanguageModel, State


class Places(NamedTuple):
    """Starts of the documents that n tokens of a range belong to, int64 [n], and the windows that score them."""

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
        return encode(model, self.blocks(model, split, start, stop), state, self.precision)

    def blocks(self, model: LanguageModel, split: str, start: int, stop: int) -> Iterator[Block]:
        """Tokens [start, stop) of a split as a model reads them."""
        examples = self.corpus.examples(split, model.config.cutting(self.windows, self.by_document))
        return examples.blocks(start, stop)

    def places(self, split: str, start: int, stop: int) -> Places:
        """The documents and windows of tokens [start, stop); segments of a stream are windows here, too."""
        cutting = Cutting("windows", self.windows.context, self.windows.stride, self.by_document)
        examples = self.corpus.examples(split, cutting)
        document = np.searchsorted(examples.documents, np.arange(start, stop), side="right") - 1
        return Places(examples.documents[document], examples.windows(start, stop))

    def tokens(self, split: str, start: int, stop: int) -> np.ndarray:
        """Tokens [start, stop) of a split, int64."""
        return np.asarray(self.corpus.arrays[f"{split}/ids"][start:stop], np.int64)

    def before(self, split: str, start: int, stop: int) -> np.ndarray:
        """The token before each of tokens [start, stop), int64; `<eos>` before the first of the split."""
        ids = self.corpus.arrays[f"{split}/ids"]
        before = np.asarray(ids[max(0, start - 1) : stop - 1], np.int64)
        return before if start else np.concatenate(([self.corpus.eos], before))
