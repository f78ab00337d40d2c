"""The tokens of stored neighbours, laid out so that training reads them in step with its segments."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.rows import Rows
from stages.retrieval.neighbor_tokens import neighbor_tokens
from stages.training.mapped import mapped, remove

DTYPE = np.dtype(np.int32)


def map_neighbors(neighbors: Artifact, splits: Iterable[str], k: int, folder: Path) -> dict[str, np.ndarray]:
    """By split, the tokens of the k best neighbours of every token, int32 [T, k], -1 where one is missing.

    Args:
        neighbors: an artifact that has k neighbours of every token of these splits.
        folder: where the arrays lie; they are made there if they do not. While they are made, the values of the
            datastore lie beside them.
    """
    group: Any = neighbors.zarr("neighbors.zarr")
    beside = folder / "values.npy"

    @cache
    def values() -> np.ndarray:
        stored: Any = neighbors.find("datastore").zarr("datastore.zarr")["values"]
        return mapped(beside, stored.shape, DTYPE, Rows(stored).read)

    def tokens(split: str) -> np.ndarray:
        ids = group[f"{split}/ids"]
        rows = Rows(ids)
        return mapped(
            folder / f"neighbors-{split}.npy",
            (ids.shape[0], k),
            DTYPE,
            lambda start, stop: neighbor_tokens(rows.read(start, stop)[:, :k], values()),
        )

    by_split = {split: tokens(split) for split in splits}
    remove(beside)
    return by_split
