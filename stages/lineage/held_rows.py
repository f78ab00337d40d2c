"""Rows of a datastore held by an index for which `build-index --merge` or `--keep` leaves some out."""

from pathlib import Path

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.stage import Inputs
from stages.errors import UsageError
from stages.lineage.indexes import NEIGHBORS
from stages.search.build import grows_in_parts
from stages.search.config import IndexConfig, Keys
from stages.search.factory import empty_index
from stages.search.merging import merged_rows, random_rows


def settings_of_some_rows(config: IndexConfig, keys: Keys) -> IndexConfig:
    """Settings of an index that leaves rows out; recall is not measured, because other rows replace
    the missing ones.

    Raises: UsageError for a kind of index without row ids, and if recall is requested.
    """
    if config.recall not in (0, IndexConfig().recall):
        raise UsageError(
            "--recall: other rows stand for those that are left out, so it is not measured: leave it out."
        )
    if not grows_in_parts(empty_index(config, keys.dim, keys.dtype)):
        raise UsageError(
            f"{config.index!r} holds all rows in their order: give --index ivf-flat, or another with lists."
        )
    return config.model_copy(update={"recall": 0})


def write_held_rows(config: IndexConfig, inputs: Inputs, path: Path) -> None:
    """Merge rows by their neighbours, or draw rows at random, and write which rows are held."""
    datastore = inputs["datastore"]
    if NEIGHBORS not in inputs:
        counts = random_rows(datastore.metrics["rows"], config.keep, config.seed)
    else:
        ids = inputs[NEIGHBORS].zarr("neighbors.zarr")[f"{datastore.config['split']}/ids"]
        values = np.asarray(datastore.zarr("datastore.zarr")["values"][:])
        rows = len(values)
        step = ids.chunks[0]
        blocks = ((first, ids[first : first + step]) for first in range(0, rows, step))
        counts = merged_rows(blocks, values)
    save_arrays(path, counts)
