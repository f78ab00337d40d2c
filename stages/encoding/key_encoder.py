"""Keys of a range of tokens, both for storing in a datastore and for searching it."""

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
    """Keys g(c_t) of n tokens as a datastore stores them, [n, d] on the CPU; the tokens, int64 [n];
    the state after them."""

    keys: Tensor
    tokens: Tensor
    state: State


@dataclass(frozen=True)
class KeyEncoder:
    """The model of a datastore, with the datastore's windows, across documents or for each document
    separately.

    A stream may be cut into ranges anywhere: keys then differ only by rounding. Each range must
    continue from the state before it.
    """

    model: LanguageModel
    reader: SplitReader
    key: str
    """`hidden` or `ffn-input`."""
    dtype: str
    """Type of the stored keys."""

    @classmethod
    def of(
        cls, datastore: Artifact, reader: SplitReader, model: LanguageModel | None = None
    ) -> Self:
        """The encoder of a datastore.

        Args:
            reader: reader of the splits to encode; its own windows are ignored.
            model: the encoder, if it is loaded already; None: it is loaded here.
        """
        settings = datastore.config
        windows = WindowSettings.of(settings)
        if model is None:
            model = load_model(datastore.input("encoder").path, reader.device, windows)
        reader = replace(reader, windows=windows, by_document=settings.get("reset") == "document")
        return cls(model, reader, settings["key"], settings["dtype"])

    def by_document(self) -> Self:
        """The same encoder, reading each document separately."""
        return replace(self, reader=replace(self.reader, by_document=True))

    @property
    def carries_state(self) -> bool:
        """Whether a range must continue from the state before it."""
        return self.model.config.carries_state

    def encode(self, split: str, start: int, stop: int, state: State) -> EncodedKeys:
        """Keys of tokens [start, stop), continuing from the state after token `start` - 1."""
        keys = []
        tokens = []
        for block in self.reader.encode(self.model, split, start, stop, state):
            # Rounded first, to copy half the bytes from the device.
            rounded = self.rounded(block.key(self.key))
            keys.append(rounded.cpu())
            tokens.append(block.targets.cpu())
            state = block.state
        return EncodedKeys(torch.cat(keys), torch.cat(tokens), state)

    def encode_shard(
        self,
        split: str,
        shard: TokenRange,
        earlier: Iterable[TokenRange],
        states: StateStore,
        output: ShardOutput,
    ) -> EncodedKeys:
        """Keys of the tokens of a shard, continuing from earlier shards. The state after it is
        written with its output.

        Args:
            earlier: the ranges before it, in reverse order, back to the start of the split.
        """
        before = iter(earlier)
        latest = next(before, None)
        state = (
            None if latest is None else self.state_behind(split, chain([latest], before), states)
        )
        encoded = self.encode(split, shard.start, shard.stop, state)
        idle = None if latest is None else latest.key
        states.keep(output, shard.key, CarriedState(shard.stop, encoded.state), idle)
        return encoded

    def state_past(self, split: str, stop: int, state: State = None, start: int = 0) -> State:
        """The state after token `stop` - 1, by reading from `start`; None if the model carries no
        state.
        """
        if self.carries_state and start < stop:
            for block in self.reader.encode(self.model, split, start, stop, state):
                state = block.state
        return state

    def state_behind(self, split: str, earlier: Iterable[TokenRange], states: StateStore) -> State:
        """The stored state after some ranges. If it is lost, the ranges after the latest stored
        state are read again.

        They are cut in the same way, because other pieces round differently.

        Args:
            earlier: the ranges in reverse order, back to the start of the split.
        """
        if not self.carries_state:
            return None
        carried, lost = states.latest(earlier)
        state = carried.state
        for part in lost:
            state = self.state_past(split, part.stop, state, part.start)
        return state

    def rounded(self, keys: Tensor) -> Tensor:
        """Keys in the dtype of the datastore."""
        return keys.to(getattr(torch, self.dtype))


def search_keys(keys: Tensor) -> np.ndarray:
    """Keys as input of a search: rounded like stored ones, in float32, [n, d]."""
    return keys.float().cpu().numpy()
