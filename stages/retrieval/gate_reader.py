"""SPALM's gate in evaluation: it mixes the tokens of stored neighbours into hidden states.

Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import EncodedBlock, HiddenMemory, HiddenReader, SplitReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.lineage.rows import stored_keys
from stages.models.gate import Gated
from stages.models.language_model import LanguageModel, State
from stages.retrieval.neighbors import neighbor_tokens
from stages.search.distances import search_with_candidates
from stages.search.open import open_searcher


@dataclass
class GateReader(HiddenReader):
    """Mixes the embeddings of the k nearest neighbours' tokens into each hidden state of a range."""

    read: Callable[[], np.ndarray]
    """Waits for the neighbours' tokens of the whole range, int64 [n, K], the same at every call; -1
    where missing.
    """
    start: int
    """The first token of the range."""
    k: int
    gated: Gated | None = None
    """The gated states of the latest block."""

    @torch.no_grad()
    def apply(self, model: LanguageModel, block: EncodedBlock) -> Tensor:
        neighbors = self.neighbors(block)
        self.gated = model.gated(block.hidden, nearest(neighbors, self.k))
        return self.gated.hidden

    def neighbors(self, block: EncodedBlock) -> Tensor:
        """Tokens of all neighbours of a block's tokens, int64 [n, K], -1 where one is missing."""
        tokens = self.read()[block.start - self.start : block.stop - self.start]
        return torch.from_numpy(tokens).to(block.targets.device)


@dataclass(frozen=True)
class GateMemory(HiddenMemory):
    """Neighbours for a model's gate: the `k` nearest of every token of a split.

    `ids`: rows of the `max_neighbors` nearest neighbours of tokens [start, stop) of a split, best first,
    int64 [n, max_neighbors]. `values`: the token of each row of their datastore, int32 [N].
    """

    name: ClassVar[str] = "gate"

    neighbors: Artifact
    ids: Callable[[str, int, int], np.ndarray]
    values: np.ndarray
    k: int
    max_neighbors: int

    @classmethod
    def open(cls, neighbors: Artifact, numbers: tuple[int, ...], values: np.ndarray | None) -> Self:
        """Open the stored neighbours that a gate reads.

        Args:
            numbers: values of k; the gate reads the first, and the largest says how many neighbours
            are loaded.
            values: the token of each row of the neighbours' datastore, int32 [N]; None: load them.
        """
        max_neighbors = max(1, *numbers)
        stored = neighbors.zarr("neighbors.zarr")
        if values is None:
            datastore: Any = neighbors.find("datastore").zarr("datastore.zarr")
            values = np.asarray(datastore["values"][:], np.int32)

        def ids(split: str, start: int, stop: int) -> np.ndarray:
            return stored[f"{split}/ids"][start:stop][:, :max_neighbors]

        return cls(neighbors, ids, values, numbers[0], max_neighbors)

    @property
    def datastore(self) -> Artifact:
        return self.neighbors.find("datastore")

    def begin(self, background: Executor, split: str, start: int, stop: int) -> GateReader:
        def read() -> np.ndarray:
            return neighbor_tokens(self.ids(split, start, stop), self.values)

        return GateReader(background.submit(read).result, start, self.k)

    def rows(self, split: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        ids = self.ids(split, start, stop)[:, : self.k]
        return ids, neighbor_tokens(ids, self.values)

    def of_text(self, reader: SplitReader) -> Self:
        return replace(self, ids=SearchedNeighbors(self.neighbors, reader, self.max_neighbors).find)


def nearest(neighbors: Tensor, k: int) -> Tensor:
    """The k nearest of neighbours [n, K]; if k is 0, one missing neighbour (-1)."""
    return neighbors[:, :k] if k else torch.full_like(neighbors[:, :1], -1)


class SearchedNeighbors:
    """Neighbours of any text, in place of a neighbors artifact: rows of the same datastore.

    It searches the artifact's index with keys of the datastore's own encoder. The settings of the
    search are those of the artifact: the number of candidates, and whether distances are computed
    from the stored keys.
    """

    def __init__(self, neighbors: Artifact, reader: SplitReader, k: int) -> None:
        """Open the index of an artifact, and the encoder of its keys.

        Args:
            neighbors: the artifact.
            reader: reads the text; the encoder reads it in the datastore's windows.
            k: neighbours to find for each token.
        """
        index = neighbors.input("index")
        datastore = index.input("datastore")
        self._k = k
        self._encoder = KeyEncoder.of(datastore, reader)
        self._stored = stored_keys(datastore)
        self._candidates = neighbors.config["candidates"]

        # The artifact's own number of probed lists, if it names one.
        probe = neighbors.config["probe"] or index.config["probe"]
        settings = {**index.config, "probe": probe}
        shape = (self._stored.rows, self._stored.dim)
        path = index.file("index.faiss")
        self._searcher = open_searcher(path, settings, shape, reader.device.type)

        # How far each split is read, with the state there.
        self._read: dict[str, tuple[int, State]] = {}
        # The latest range, with its neighbours.
        self._last: tuple[tuple[str, int, int], np.ndarray] | None = None

    def find(self, split: str, start: int, stop: int) -> np.ndarray:
        """Neighbours of tokens [start, stop), int64 [n, k]; the latest result is kept for the next
        call.
        """
        token_range = (split, start, stop)
        if self._last is None or self._last[0] != token_range:
            keys = self._keys(split, start, stop)
            # A search finds at least one neighbour, even if none is read.
            k = max(1, self._k)
            ids, _ = search_with_candidates(self._searcher, self._stored, keys, k, self._candidates)
            self._last = token_range, ids[:, : self._k]
        return self._last[1]

    def _keys(self, split: str, start: int, stop: int) -> np.ndarray:
        """Search keys, float32 [n, d]. Encoding resumes where the split's last call ended, unless
        that is later.
        """
        position, state = self._read.get(split, (0, None))
        # The carried state belongs to a later position, so the text is read from its beginning.
        if position > start:
            position = 0
            state = None
        state_at_start = self._encoder.state_past(split, start, state, position)
        encoded = self._encoder.encode(split, start, stop, state_at_start)
        self._read[split] = stop, encoded.state
        return search_keys(encoded.keys)
