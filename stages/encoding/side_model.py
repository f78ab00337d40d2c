"""A second language model that reads the same text as the evaluated one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import SplitReader
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.models.config import model_of
from stages.models.language_model import LanguageModel, State
from stages.models.weights import load_model


class SideStates(NamedTuple):
    """Hidden states of n tokens, [n, d], and the state after them."""

    hidden: Tensor
    state: State


@dataclass(frozen=True)
class SideModel:
    """A model, and the windows in which it reads: as long as the segments of its training."""

    model: LanguageModel
    reader: SplitReader

    @classmethod
    def of(cls, artifact: Artifact, reader: SplitReader) -> Self:
        """Load a model.

        Args:
            reader: reader of the evaluated model. Where its windows overlap, these do, too.
        """
        windows = side_windows(artifact, reader.windows)
        model = load_model(artifact.path, reader.device, windows)
        return cls(model, replace(reader, windows=windows))

    def of_corpus(self, corpus: Corpus) -> Self:
        """The same model, reading another corpus."""
        return replace(self, reader=replace(self.reader, corpus=corpus))

    @property
    def carries_state(self) -> bool:
        """Whether a range must continue from the state before it."""
        return self.model.config.carries_state

    def encode(self, split: str, start: int, stop: int, state: State) -> SideStates:
        """Read tokens [start, stop), continuing from the state after token `start` - 1."""
        hidden = []
        for block in self.reader.encode(self.model, split, start, stop, state):
            hidden.append(block.hidden)
            state = block.state
        return SideStates(torch.cat(hidden), state)


def side_windows(artifact: Artifact, evaluated: WindowSettings) -> WindowSettings:
    """Windows of a side model: its own segments, one after the other; overlapping as far as those
    of the evaluated model.
    """
    context = int(artifact.config["segment_length"])
    stride = context
    if evaluated.stride < evaluated.context and not model_of(artifact).carries_state:
        stride = min(context, evaluated.stride)
    carried, remembered = model_of(artifact).lengths
    return WindowSettings(context, stride, carried, remembered)


@dataclass(frozen=True)
class SideModels:
    """Side models by name, as the memory of a source that reads them."""

    models: Mapping[str, SideModel]
