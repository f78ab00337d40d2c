"""SPALM's gate in evaluation: it mixes the tokens of stored neighbours into hidden states.

Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import EncodedBlock, HiddenMemory, HiddenReader, SplitReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.lineage.evaluation import MODELS_OWN
from stages.lineage.rows import stored_keys
from stages.models.gate import Gated
from stages.models.language_model import LanguageModel, State
from stages.retrieval.neighbors import NeighborTokens
from stages.search.distances import search_with_candidates
from stages.search.open import open_searcher


class GateReader(HiddenReader):
    """Mixes the embeddings of the k nearest neighbours' tokens into each hidden state of a range."""

    def __init__(self, read: Callable[[], np.ndarray], start: int, k: int) -> None:
        """Args:
        read: waits for the neighbours' tokens of the whole range, int64 [n, K]; -1 where a neighbour is missing.
        start: the first token of the range.
        """
        self._read, self._start, self.k = read, start, k
        self._neighbors: Tensor | None = None
        self.gated: Gated | None = None
        """The gated states of the latest block."""

    @torch.no_grad()
    def apply(self, model: LanguageModel, block: EncodedBlock) -> Tensor:
        neighbors = self.neighbors(block)
        self.gated = model.gated(block.hidden, nearest(neighbors, self.k))
        return self.gated.hidden

    def neighbors(self, block: EncodedBlock) -> Tensor:
        """Tokens of all neighbours of a block's tokens, int64 [n, K], -1 where one is missing."""
        if self._neighbors is None:
            self._neighbors = torch.from_numpy(self._read()).to(block.targets.device)
        return self._neighbors[block.start - self._start : block.stop - self._start]


@dataclass(frozen=True)
class GateMemory(HiddenMemory):
    """Neighbours for a model's gate: the `k` nearest of every token of a split."""

    name: ClassVar[str] = "gate"

    neighbors: Artifact
    tokens: NeighborTokens
    k: int

    @classmethod
    def open(cls, neighbors: Artifact, numbers: tuple[int, ...], values: np.ndarray | None) -> Self:
        """Open the stored neighbours that a gate reads.

        Args:
            numbers: values of k; the gate reads the first, and the largest says how many neighbours are loaded.
            values: the token of each row of the neighbours' datastore, int32 [N]; None: load them.
        """
        k = max(1, *numbers)
        tokens = NeighborTokens.of(neighbors, k, values)
        return cls(neighbors, tokens, numbers[0])

    @property
    def datastore(self) -> Artifact:
        return self.neighbors.find("datastore")

    def begin(self, background: Executor, split: str, start: int, stop: int) -> GateReader:
        return GateReader(background.submit(self.tokens.read, split, start, stop).result, start, self.k)

    def rows(self, split: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        ids, tokens = self.tokens.ids(split, start, stop), self.tokens.read(split, start, stop)
        return ids[:, : self.k], tokens[:, : self.k]

    def of_text(self, reader: SplitReader) -> Self:
        found = SearchedNeighbors(self.neighbors, reader, self.tokens.k)
        return replace(self, tokens=replace(self.tokens, arrays=found))


def nearest(neighbors: Tensor, k: int) -> Tensor:
    """The k nearest of neighbours [n, K]; if k is 0, one missing neighbour (-1)."""
    return neighbors[:, :k] if k else torch.full_like(neighbors[:, :1], -1)


def open_hidden_memory(
    read: Mapping[str, Artifact], options: Mapping[str, Any], datastore: Artifact | None, values: np.ndarray | None
) -> HiddenMemory | None:
    """Open the memory that the evaluated model's gate reads; None if the model has no gate.

    Args:
        read: inputs of the evaluation, by role.
        options: options of the probes, resolved.
        datastore: the datastore that the readings of the evaluation use.
        values: its tokens, int32 [N]; the gate shares them if its neighbours are of the same datastore.
    """
    neighbors = read.get(MODELS_OWN)
    if neighbors is None:
        return None
    shared = datastore is not None and neighbors.find("datastore").record == datastore.record
    return GateMemory.open(neighbors, options["gate_k"], values if shared else None)


class SearchedNeighbors:
    """Replaces the arrays of a neighbors artifact for any text: `<split>/ids` are rows of the same datastore.

    It searches the artifact's index with keys of the datastore's own encoder. The settings of the search are those of
    the artifact: the number of candidates, and whether distances are computed from the stored keys.
    """

    def __init__(self, neighbors: Artifact, reader: SplitReader, k: int) -> None:
        """Args:
        neighbors: the artifact.
        reader: reads the text; the encoder reads it in the datastore's windows.
        k: neighbours to find for each token.
        """
        self._k = k
        index = neighbors.input("index")
        datastore = index.input("datastore")
        self._encoder = KeyEncoder.of(datastore, reader)
        probe = neighbors.config["probe"] or index.config["probe"]
        self._stored = stored_keys(datastore)
        keys, settings = (self._stored.rows, self._stored.dim), {**index.config, "probe": probe}
        self._searcher = open_searcher(index.file("index.faiss"), settings, keys, reader.device.type)
        self._candidates = neighbors.config["candidates"]
        self._read: dict[str, tuple[int, State]] = {}
        self._last: tuple[tuple[str, int, int], np.ndarray] | None = None

    def __getitem__(self, name: str) -> Any:
        """The neighbours of one split; its `read(start, stop)` searches for them."""
        return SimpleNamespace(read=partial(self.find, name.removesuffix("/ids")))

    def find(self, split: str, start: int, stop: int) -> np.ndarray:
        """Neighbours of tokens [start, stop), int64 [n, k]; the latest result is kept for the next call."""
        asked = split, start, stop
        if self._last is None or self._last[0] != asked:
            keys = self._keys(split, start, stop)
            found, _ = search_with_candidates(self._searcher, self._stored, keys, max(1, self._k), self._candidates)
            self._last = asked, found[:, : self._k]
        return self._last[1]

    def _keys(self, split: str, start: int, stop: int) -> np.ndarray:
        """Search keys, float32 [n, d]. Encoding resumes where the split's last call ended, unless that is later."""
        place, state = self._read.get(split, (0, None))
        # The carried state belongs to a later position, so the text is read from its beginning.
        if place > start:
            place, state = 0, None
        encoded = self._encoder.encode(split, start, stop, self._encoder.state_past(split, start, state, place))
        self._read[split] = stop, encoded.state
        return search_keys(encoded.keys)
