"""Representations of a range of a split's tokens, from which datastores, queries and scores are
made.
"""

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
from stages.examples.examples import BATCH_TOKENS, Block, Corpus
from stages.examples.windows import Window
from stages.models.computing import autocast
from stages.models.language_model import Encoding, LanguageModel, State


@dataclass
class EncodedBlock:
    """The contexts of tokens [start, stop), n of them: row r predicts token start + r.

    `encoding` holds representations of the inputs of `windows`, [B, L, d]. A pooling model has one
    per window, [B, 1, d]. `targets` int64 [n] are the tokens. All are on the model's device.
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
        """The representation used to search memory, `hidden` or `ffn-input`, [n, d]."""
        return self.of_tokens(self.encoding.key(name))

    def of_tokens(self, positions: Tensor) -> Tensor:
        """Select the values of inputs that predict the tokens, [n, …], from those of all windows'
        inputs, [B, L, …].
        """
        return torch.cat(
            [rows[self._scored(w)] for w, rows in zip(self.windows, positions, strict=True)]
        )

    def context_keys(self, name: str) -> list[Tensor]:
        """For each window, representations of the inputs before the first token that it scores
        here, [c, d].
        """
        return [
            rows[: self._scored(w).start]
            for w, rows in zip(self.windows, self.encoding.key(name), strict=True)
        ]

    def _scored(self, window: Window) -> slice:
        first = max(self.start, window.scored_from)
        last = min(self.stop, window.stop)
        # A row begins with its window's first input. Padding, if any, comes last and is cut off
        # here.
        return slice(first - window.start, last - window.start)


def encode(
    model: Any,
    blocks: Iterable[Block],
    state: State = None,
    precision: str = "fp32",
    gradients: bool = False,
) -> Iterator[EncodedBlock]:
    """Encode consecutive blocks lazily, one at a time.

    Args:
        model: a LanguageModel.
        blocks: from `Examples.blocks`, cut for the model (`model.config.cutting`).
        state: state of the backbone before the first block; None: it starts anew there.
        precision: `fp32` or `bf16`.
        gradients: whether gradients flow into the model, for adaptation at test time.
    """
    device = next(model.parameters()).device
    for block in blocks:
        batch = block.batch.to(device)
        with torch.set_grad_enabled(gradients), autocast(device, precision):
            encoding = model.read(batch, state if block.continues else None)
        state = encoding.state
        yield EncodedBlock(block.start, block.stop, batch.targets, block.windows, encoding)


class Places(NamedTuple):
    """For n tokens of a range: starts of their documents, int64 [n], and the windows that score
    them.
    """

    document_starts: np.ndarray
    windows: list[Window]


@dataclass(frozen=True)
class SplitReader:
    """Windows over the splits of a corpus, or segments for a backbone that carries state.

    `by_document`: whether windows and state start anew at every document.
    """

    corpus: Corpus
    windows: WindowSettings
    by_document: bool
    device: torch.device
    precision: str
    rereads: ClassVar[bool] = False
    """Whether windows that share tokens have other inputs before them, so that none continues
    another."""

    def counted_from(self, place: int) -> Self:
        """The same reader, whose strides are counted from a token; windows have none of their own."""
        return self

    def quoted(self, split: str, start: int, stop: int) -> list[Any]:
        """The passages of an open book before tokens [start, stop); none without a book."""
        return []

    def encode(
        self, model: LanguageModel, split: str, start: int, stop: int, state: State = None
    ) -> Iterator[EncodedBlock]:
        """Encode tokens [start, stop) of a split with a model, continuing from `state`."""
        return encode(model, self.blocks(model, split, start, stop), state, self.precision)

    def blocks(
        self,
        model: LanguageModel,
        split: str,
        start: int,
        stop: int,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[Block]:
        """Blocks of tokens [start, stop) of a split, cut for a model.

        Args:
            batch_tokens: maximum number of inputs that are read together; a window may have more.
        """
        cutting = model.config.cutting(self.windows, self.by_document)
        return self.corpus.examples(split, cutting).blocks(start, stop, batch_tokens)

    def documents(self, split: str) -> np.ndarray:
        """The first token of each document of a split, and its end, int64 [D + 1]."""
        return np.asarray(self.corpus.arrays[f"{split}/doc_offsets"][:], np.int64)

    def places(self, split: str, start: int, stop: int) -> Places:
        """The documents and windows of tokens [start, stop); segments of a stream count as windows,
        too.
        """
        cutting = Cutting("windows", self.windows.context, self.windows.stride, self.by_document)
        examples = self.corpus.examples(split, cutting)
        document = np.searchsorted(examples.documents, np.arange(start, stop), side="right") - 1
        return Places(examples.documents[document], examples.windows(start, stop))

    def tokens(self, split: str, start: int, stop: int) -> np.ndarray:
        """Tokens [start, stop) of a split, int64."""
        return np.asarray(self.corpus.arrays[f"{split}/ids"][start:stop], np.int64)

    def before(self, split: str, start: int, stop: int) -> np.ndarray:
        """The token before each token of [start, stop), int64; `<eos>` before the first of the
        split.
        """
        ids = self.corpus.arrays[f"{split}/ids"]
        before = np.asarray(ids[max(0, start - 1) : stop - 1], np.int64)
        return before if start else np.concatenate(([self.corpus.eos], before))


class HiddenReader(ABC):
    """Adds memory to the hidden states of a range of tokens, block after block."""

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
        """The datastore with the rows of this memory."""

    @abstractmethod
    def begin(self, background: Executor, split: str, start: int, stop: int) -> HiddenReader:
        """Start reading the memory for tokens [start, stop) of a split, in the background."""

    @abstractmethod
    def rows(self, split: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the datastore used at tokens [start, stop), and the tokens in these rows, int64
        [n, k] each.

        Missing ones are -1.
        """

    @abstractmethod
    def of_text(self, reader: SplitReader) -> Self:
        """The same memory for a text without precomputed neighbours: it is searched with the keys
        of `reader`'s text."""
