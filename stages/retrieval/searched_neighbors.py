"""Neighbours of a text that none are stored of: found when they are read."""

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.encoding.split_reader import SplitReader
from stages.lineage.keys import stored_keys
from stages.models.language_model import State
from stages.search.distances import search_with_candidates
from stages.search.open import open_searcher


class SearchedNeighbors:
    """Stands for the arrays of a neighbors artifact: `<split>/ids`, rows of the same datastore, of any text.

    Contexts are searched for in the index behind the artifact, with the keys of the datastore's own encoder,
    and as it was searched then: among as many candidates, with distances of the stored keys where it was so.
    """

    def __init__(self, neighbors: Artifact, reader: SplitReader, k: int) -> None:
        """Args:
        neighbors: the artifact.
        reader: how the text is read; the encoder reads it in the datastore's windows.
        k: how many are found for a token.
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

    def __getitem__(self, name: str) -> "SearchedRows":
        return SearchedRows(self, name.removesuffix("/ids"))

    def find(self, split: str, start: int, stop: int) -> np.ndarray:
        """Neighbours of tokens [start, stop), int64 [n, k]; those asked for last are not searched for again."""
        asked = split, start, stop
        if self._last is None or self._last[0] != asked:
            keys = self._keys(split, start, stop)
            found, _ = search_with_candidates(self._searcher, self._stored, keys, max(1, self._k), self._candidates)
            self._last = asked, found[:, : self._k]
        return self._last[1]

    def _keys(self, split: str, start: int, stop: int) -> np.ndarray:
        """Search keys float32 [n, d], going on from the last ones of the split, if they end before these."""
        place, state = self._read.get(split, (0, None))
        if place > start:
            place, state = 0, None
        encoded = self._encoder.encode(split, start, stop, self._encoder.state_past(split, start, state, place))
        self._read[split] = stop, encoded.state
        return search_keys(encoded.keys)


class SearchedRows:
    """The neighbours of one split, found when they are read."""

    def __init__(self, neighbors: SearchedNeighbors, split: str) -> None:
        self._neighbors, self._split = neighbors, split

    def read(self, start: int, stop: int) -> np.ndarray:
        """Those of tokens [start, stop), int64 [n, k]."""
        return self._neighbors.find(self._split, start, stop)
