"""Keys of a range of tokens: those that a datastore stores, and those that it is searched with."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.encoding.carried_state import CarriedState, StateStore
from stages.encoding.encode import SplitReader
from stages.encoding.window_settings import TokenRange
from stages.examples.cutting import WindowSettings
from stages.models.language_model import LanguageModel, State
from stages.models.weights import load_model


class EncodedKeys(NamedTuple):
    """Keys g(c_t) of n tokens as a datastore keeps them, [n, d] on the CPU; the tokens, int64 [n]; the state behind."""

    keys: Tensor
    tokens: Tensor
    state: State


@dataclass(frozen=True)
class KeyEncoder:
    """The model of a datastore, reading as it does for that: in its windows, across documents or each by itself.

    A stream may be cut into ranges anywhere: keys differ by rounding alone. Each range must continue from the state
    before it.
    """

    model: LanguageModel
    reader: SplitReader
    key: str
    """`hidden` or `ffn-input`."""
    dtype: str
    """Type of the stored keys."""

    @classmethod
    def of(cls, datastore: Artifact, reader: SplitReader, model: LanguageModel | None = None) -> Self:
        """The encoder of a datastore.

        Args:
            reader: of the splits that are encoded; how it reads them does not matter.
            model: where it is loaded already.
        """
        settings = datastore.config
        windows = WindowSettings.of(settings)
        if model is None:
            model = load_model(datastore.input("encoder").path, reader.device, windows)
        reader = replace(reader, windows=windows, by_document=settings.get("reset") == "document")
        return cls(model, reader, settings["key"], settings["dtype"])

    def by_document(self) -> Self:
        """The same, which reads each document by itself."""
        return replace(self, reader=replace(self.reader, by_document=True))

    @property
    def carries_state(self) -> bool:
        """Whether a range must go on from the one before it."""
        return self.model.config.carries_state

    def encode(self, split: str, start: int, stop: int, state: State) -> EncodedKeys:
        """Keys of tokens [start, stop), going on from the state past token `start` - 1."""
        keys, tokens = [], []
        for block in self.reader.encode(self.model, split, start, stop, state):
            # Rounded first: half as many bytes leave the device.
            keys.append(self.rounded(block.key(self.key)).cpu())
            tokens.append(block.targets.cpu())
            state = block.state
        return EncodedKeys(torch.cat(keys), torch.cat(tokens), state)

    def encode_shard(
        self, split: str, shard: TokenRange, earlier: Iterable[TokenRange], states: StateStore, output: ShardOutput
    ) -> EncodedKeys:
        """Keys of the tokens of a shard, behind those of earlier ones; what is carried past it is written with it.

        Args:
            earlier: the ranges before it, the last first, back to the start of the split.
        """
        before = iter(earlier)
        latest = next(before, None)
        state = None if latest is None else self.state_behind(split, chain([latest], before), states)
        encoded = self.encode(split, shard.start, shard.stop, state)
        idle = None if latest is None else latest.key
        states.keep(output, shard.key, CarriedState(shard.stop, encoded.state), idle)
        return encoded

    def state_past(self, split: str, stop: int, state: State = None, start: int = 0) -> State:
        """The state past token `stop` - 1, by reading from `start` on; None where nothing is carried."""
        if self.carries_state and start < stop:
            for block in self.reader.encode(self.model, split, start, stop, state):
                state = block.state
        return state

    def state_behind(self, split: str, earlier: Iterable[TokenRange], states: StateStore) -> State:
        """The state past some ranges, as they left it; where that is lost, those behind it are read once more.

        They are cut as they were then, since other pieces round otherwise.

        Args:
            earlier: the last first, back to the start of the split.
        """
        if not self.carries_state:
            return None
        carried, lost = states.latest(earlier)
        state = carried.state
        for one in lost:
            state = self.state_past(split, one.stop, state, one.start)
        return state

    def rounded(self, keys: Tensor) -> Tensor:
        """Keys in the dtype in which they are stored."""
        return keys.to(getattr(torch, self.dtype))


def search_keys(keys: Tensor) -> np.ndarray:
    """Keys as a search takes them: as they are stored, in float32, [n, d]."""
    return keys.float().cpu().numpy()
