"""The tokens that stored neighbours hold. Free of torch."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.rows import RowsByName


def neighbor_tokens(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Tokens of neighbours, int64 [n, k], -1 where one is missing.

    Args:
        ids: integers [n, k], rows of a datastore, -1 where a neighbour is missing.
        values: int32 [N], the token of every row of it, at least one; in memory or mapped.
    """
    present = ids >= 0
    return np.where(present, values[np.where(present, ids, 0)], -1).astype(np.int64)


@dataclass(frozen=True)
class NeighborTokens:
    """The tokens that the best `k` stored neighbours of every token hold.

    `arrays[<split>/ids]` reads rows of [T, K], as `RowsByName` or `SearchedNeighbors`; `values` int32 [N] are at hand.
    """

    arrays: Any
    values: np.ndarray
    k: int

    @classmethod
    def of(cls, neighbors: Artifact, k: int, values: np.ndarray | None = None) -> Self:
        """Those of a neighbors artifact, which must hold at least k a token; `values`: where they are at hand."""
        if values is None:
            datastore: Any = neighbors.find("datastore").zarr("datastore.zarr")
            values = np.asarray(datastore["values"][:], np.int32)
        return cls(RowsByName(neighbors.zarr("neighbors.zarr")), values, k)

    def ids(self, split: str, start: int, stop: int) -> np.ndarray:
        """Rows of the datastore that are the neighbours of tokens [start, stop), best first, int64 [n, k]."""
        return self.arrays[f"{split}/ids"].read(start, stop)[:, : self.k]

    def read(self, split: str, start: int, stop: int) -> np.ndarray:
        """Tokens of the neighbours of tokens [start, stop) of a split, best first, int64 [n, k], -1 where missing."""
        return neighbor_tokens(self.ids(split, start, stop), self.values)
