"""An opened index that answers queries: ids and distances of the k best allowed rows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Searcher(ABC):
    """Finds the nearest rows of one datastore; knows nothing of artifacts.

    Attributes:
        rows: number of keys in the index.
        dim: width of a key.
        metric: `l2` (squared distance, smaller is better) or `ip` (inner product, larger is better).
        lossless: distances are those of the stored keys, so recomputing them would change nothing.
    """

    rows: int
    dim: int
    metric: str
    lossless: bool

    @abstractmethod
    def search(
        self, queries: np.ndarray, k: int, exclude_ranges: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best allowed rows of each query, best first, ties by the smaller row.

        Args:
            queries: [n, dim] float32, already rounded to the dtype of the stored keys. Large n is
                faster a query; the memory used beyond the result is bounded.
            k: neighbours wanted, >= 1; may exceed the number of rows.
            exclude_ranges: [n, 2] int64, rows start <= row < stop that query may not see
                (start == stop: none).
        Returns: ids [n, k] int64 and distances [n, k] float32. Where fewer than k allowed rows
            exist, the rest is id -1 with distance +inf (l2) or -inf (ip).
        """


def open_searcher(index: Path, settings: Mapping[str, Any], device: str = "cpu") -> Searcher:
    """Open a built index.

    Args:
        index: its `index.faiss`.
        settings: the resolved settings of the index artifact (its `config`).
        device: `cpu` or `cuda`.
    Raises: ArtifactError if the file is no index that FAISS can read.
    """
    raise NotImplementedError
