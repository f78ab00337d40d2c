"""Representations of a range of a split's tokens: datastores, queries and scores start here."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.examples.cutting import Cutting, WindowSettings
from stages.examples.examples import Block, Corpus
from stages.examples.windows import Window
from stages.models.devices import autocast
from stages.models.language_model import Encoding, LanguageModel, State


@dataclass
class EncodedBlock:
    """The contexts of tokens [start, stop), n of them: row r predicts token start + r.

    `encoding` holds representations of the inputs of `windows`, [B, L, d]. A model that pools gives one for each
    window, [B, 1, d]. `targets` int64 [n] are the tokens. All are on the model's device.
    """

    start: int
    stop: int
    targets: Tensor
    windows: list[Window]
    encoding: Encoding

    @property
    def hidden(self) -> Tensor:
        return self.key("hidden")

    @property
    def state(self) -> State:
        """State that the backbone carries past the block; None: nothing."""
        return self.encoding.state

    def key(self, name: str) -> Tensor:
        """The representation that memory is searched with, `hidden` or `ffn-input`, [n, d]."""
        return self.of_tokens(self.encoding.key(name))

    def of_tokens(self, positions: Tensor) -> Tensor:
        """Select from values of the windows' inputs, [B, L, …], those that predict the tokens, [n, …]."""
        return torch.cat([rows[self._scored(w)] for w, rows in zip(self.windows, positions, strict=True)])

    def context_keys(self, name: str) -> list[Tensor]:
        """Representations of each window's inputs before the first token that it scores here, [c, d]."""
        return [rows[: self._scored(w).start] for w, rows in zip(self.windows, self.encoding.key(name), strict=True)]

    def _scored(self, window: Window) -> slice:
        first, last = max(self.start, window.scored_from), min(self.stop, window.stop)
        # A row begins with its window's first input: padding, if there is any, comes last and is cut off here.
        return slice(first - window.start, last - window.start)


def encode(
    model: Any, blocks: Iterable[Block], state: State = None, precision: str = "fp32", gradients: bool = False
) -> Iterator[EncodedBlock]:
    """Encode blocks that follow each other, each when it is asked for.

    Args:
        model: a LanguageModel.
        blocks: of `Examples.blocks`, cut as the model wants them (`model.config.cutting`).
        state: what the backbone carries past the token before the first block; None: it begins anew there.
        precision: `fp32` or `bf16`.
        gradients: whether gradients flow into the model, as adaptation at test wants them.
    """
    device = next(model.parameters()).device
    for block in blocks:
        batch = block.batch.to(device)
        with torch.set_grad_enabled(gradients), autocast(device, precision):
            encoding = model.read(batch, state if block.continues else None)
        state = encoding.state
        yield EncodedBlock(block.start, block.stop, batch.targets, block.windows, encoding)


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
    in_pieces: bool = False
    """Whether it reads the first window in pieces that go on from each other, as a recurrent model can."""

    def encode(
        self, model: LanguageModel, split: str, start: int, stop: int, state: State = None
    ) -> Iterator[EncodedBlock]:
        """Encode tokens [start, stop) of a split with a model, going on from `state`."""
        return encode(model, self.blocks(model, split, start, stop), state, self.precision)

    def blocks(self, model: LanguageModel, split: str, start: int, stop: int) -> Iterator[Block]:
        """Tokens [start, stop) of a split as a model reads them."""
        cutting = model.config.cutting(self.windows, self.by_document)
        if self.in_pieces:
            cutting = cutting._replace(way="stream")
        return self.corpus.examples(split, cutting).blocks(start, stop)

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


class HiddenReader(ABC):
    """Lets the memory of one range of tokens into their hidden states, block after block."""

    @abstractmethod
    def apply(self, model: LanguageModel, block: EncodedBlock) -> Tensor:
        """Compute the hidden states that the softmax reads for a block, [n, d]."""


class HiddenMemory(ABC):
    """A memory that a model was trained to add to its hidden states, opened for an evaluation."""

    name: ClassVar[str]
    """Name in tables."""

    @property
    @abstractmethod
    def datastore(self) -> Artifact:
        """The datastore whose rows enter."""

    @abstractmethod
    def begin(self, background: Executor, split: str, start: int, stop: int) -> HiddenReader:
        """Begin to read what tokens [start, stop) of a split need, in the background."""

    @abstractmethod
    def rows(self, split: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the datastore that enter at tokens [start, stop), and the tokens that they hold, int64 [n, k] each.

        -1 where one is missing.
        """

    @abstractmethod
    def of_text(self, reader: SplitReader) -> Self:
        """The same for a text that nothing is stored of: what `reader` reads is searched for."""
