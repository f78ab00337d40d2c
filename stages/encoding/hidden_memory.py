"""Memory that enters a model's hidden states before the softmax scores them, as SPALM's does."""

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import ClassVar, Self

import numpy as np
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import EncodedBlock
from stages.encoding.split_reader import SplitReader
from stages.models.language_model import LanguageModel


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
