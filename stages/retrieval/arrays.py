"""Datastores and indexes over arrays, with or without a store. Free of torch until a search."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stages import arguments
from stages.errors import UsageError
from stages.search.config import IndexConfig, Keys
from stages.validation import validated

if TYPE_CHECKING:
    from stages.memory.entries import Entries
    from stages.search.searcher import Searcher


CHECKED_ROWS = 8192
"""Keys that are checked at a time."""

LARGEST_LENGTH = float(np.finfo(np.float32).max) / 64
"""Largest squared length of a vector.

A squared distance is at most four times as large. Its computation has terms a little larger.
"""

NOT_OF_ARRAYS = ("keep", "recall", "split")
"""Settings of build-index that do not say how an index of arrays is built."""


class Datastore:
    """Keys and values: row i holds the representation of a context, and the token that followed it."""

    def __init__(self, keys: Any, values: Any) -> None:
        """Check and hold the rows; NumPy, torch, Zarr and lists are taken alike.

        All keys are read once, to find a row that would spoil the answers to every query.

        Args:
            keys: float [rows, dim]. float16 and float32 stay as they are; bfloat16 and float64
                become float32.
            values: int [rows], ids of tokens.
        Raises: UsageError naming what is wrong, and its row: other types or shapes, no rows, NaN,
            infinity, or keys whose squared length is beyond float32.
        """
        self._keys = _stored(keys, "keys", "[rows, dim]")
        self._values = arguments.tokens(_whole(values), "values")
        rows, dim = self._keys.shape
        if (rows,) != self._values.shape:
            raise UsageError(
                f"keys are [rows, dim] and values [rows], not {[rows, dim]} and {[*self._values.shape]}."
            )
        if not rows or not dim:
            raise UsageError(f"A datastore has a key at least, not keys of shape {[rows, dim]}.")
        require_searchable(self._keys, "keys")

    @property
    def keys(self) -> Any:
        """Representations of contexts, float16 or float32 [rows, dim]."""
        return self._keys

    @property
    def values(self) -> Any:
        """The token that follows each, int [rows]."""
        return self._values

    def batches(self, rows: int = 8192) -> "Iterator[tuple[np.ndarray, np.ndarray]]":
        """Keys and values of a number of rows at a time, in stored order."""
        rows = arguments.count(rows, "rows")
        keys = self.keys
        values = self.values
        for start in range(0, len(values), rows):
            yield keys[start : start + rows], values[start : start + rows]


class Index:
    """The keys of a datastore, ready to be searched."""

    def __init__(
        self, datastore: Datastore, index: str = "auto", metric: str = "l2", **settings: Any
    ) -> None:
        """Choose how keys are searched; the index is built at the first search.

        Args:
            index: a kind, or a FAISS factory string.
            metric: `l2`, squared distance, or `ip`, inner product.
            settings: other settings of `memlm build-index` that say how an index is built.
        Raises: UsageError for settings that do not exist, or do not suit these keys.
        """
        from stages.search.automatic import resolve

        if not isinstance(datastore, Datastore):
            raise UsageError(
                f"An index is built of a memlm.Datastore, not of {type(datastore).__name__}: "
                "memlm.Datastore(keys, values)."
            )
        for name in NOT_OF_ARRAYS:
            if name in settings:
                raise UsageError(f"{name} is a setting of memlm build-index: leave it out here.")
        config = validated(IndexConfig, {"index": index, "metric": metric, **settings})
        rows, dim = datastore.keys.shape
        self._data = datastore
        self._settings = resolve(config, Keys(rows, dim, datastore.keys.dtype.name))

    @property
    def datastore(self) -> Datastore:
        """The keys that are searched, and their values."""
        return self._data

    @cached_property
    def searcher(self) -> "Searcher":
        """The engine, made when it is first asked for."""
        from stages.search.keys import StoredKeys
        from stages.search.open import build_searcher

        return build_searcher(self._settings, StoredKeys(self.datastore.keys, 8192))

    def search(
        self, queries: Any, k: int, exclude_ranges: Any = None
    ) -> "tuple[np.ndarray, np.ndarray]":
        """The k nearest rows of its datastore for each query.

        Args:
            queries: numbers [n, dim], or [dim] for one; rounded as the stored keys are.
            k: number of rows, at most those of the datastore.
            exclude_ranges: int [n, 2], rows start <= row < stop that a query may not find; None:
                it may find all.
        Returns: ids int64 [n, k], best first, -1 where there are fewer; distances float32 [n, k],
            squared L2, or inner products.
        Raises: UsageError naming what is wrong, and its row.
        """
        searcher = self.searcher
        vectors = _queries(queries, searcher.dim, self.datastore.keys.dtype)
        # The answer has room for all k.
        if arguments.count(k, "k") > searcher.rows:
            raise UsageError(
                f"k is the {searcher.rows:,} rows of the datastore at the most, not {k:,}."
            )
        return searcher.search(vectors, k, _ranges(exclude_ranges, len(vectors)))

    def entries(self, queries: Any, k: int, exclude_ranges: Any = None) -> "Entries":
        """Scores and tokens of the nearest rows of each query, to be read as memory; arguments as
        of `search`.
        """
        import torch

        from stages.memory.external import NearestRows, external_entries, scores_from_distances

        ids, distances = self.search(queries, k, exclude_ranges)
        scores = scores_from_distances(torch.from_numpy(distances), self.searcher.metric)
        values = torch.from_numpy(np.append(np.asarray(self.datastore.values[:], np.int64), -1))
        return external_entries(NearestRows(torch.from_numpy(ids), scores, values))


def require_searchable(keys: Any, name: str) -> None:
    """Check that distances from these vectors are finite numbers.

    Args:
        keys: float [rows, dim], an array or a Zarr array, read block by block.
    Raises: UsageError naming the first row that holds NaN or infinity, or is too long.
    """
    for start in range(0, keys.shape[0], CHECKED_ROWS):
        block = np.asarray(keys[start : start + CHECKED_ROWS])
        wide = block.astype(np.float32, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.einsum("nd,nd->n", wide, wide)
        # NaN and infinity fail this comparison as well.
        is_too_long = ~(lengths <= LARGEST_LENGTH)
        if not is_too_long.any():
            continue

        row = int(np.argmax(is_too_long))
        vector = block[row]
        not_finite = vector[~np.isfinite(vector)]
        if len(not_finite):
            raise UsageError(
                f"{name}: row {start + row:,} holds {not_finite[0]}, which is no finite number."
            )
        raise UsageError(
            f"{name}: row {start + row:,} is a vector whose squared length is beyond float32; "
            "divide all keys and queries by one number."
        )


def _stored(keys: Any, name: str, shape: str) -> Any:
    """Keys as an array that can be sliced: arrays with chunks on a disk stay there."""
    if not hasattr(keys, "chunks"):
        return arguments.floats(keys, name, shape)
    if len(keys.shape) != 2:
        raise UsageError(f"{name} are {shape}, not {[*keys.shape]}.")
    arguments.require_float(np.dtype(keys.dtype), name)
    return keys


def _whole(values: Any) -> Any:
    """Values in memory: they take little beside the keys."""
    return values[:] if hasattr(values, "chunks") else values


def _queries(queries: Any, dim: int, dtype: np.dtype) -> np.ndarray:
    """Queries as a search takes them, float32 [n, dim], rounded to the type of the keys."""
    numbers = np.atleast_2d(arguments.array(queries, "queries", f"[n, {dim}]", f"[{dim}]"))
    if numbers.shape[1] != dim:
        raise UsageError(f"queries are [n, {dim}], not {list(numbers.shape)}.")
    require_searchable(numbers, "queries")

    # A finite number of the query may be infinite in float16; it is refused below.
    with np.errstate(over="ignore"):
        rounded = numbers.astype(dtype).astype(np.float32)
    overflows = ~np.isfinite(rounded).all(axis=1)
    if overflows.any():
        row = int(np.argmax(overflows))
        raise UsageError(
            f"queries: row {row:,} holds a number beyond {dtype}, the type of the keys; "
            "make a datastore of float32 keys."
        )
    return rounded


def _ranges(ranges: Any, num_queries: int) -> np.ndarray | None:
    """Range [start, stop) of rows that each query may not find, int64 [n, 2]; None: none.

    Raises: UsageError for other types or shapes, and for a start behind its stop.
    """
    if ranges is None:
        return None
    numbers = arguments.array(ranges, "exclude_ranges", "[n, 2]")
    if numbers.dtype.kind == "f" or numbers.shape != (num_queries, 2):
        raise UsageError(
            f"exclude_ranges are whole numbers, {[num_queries, 2]}, not {numbers.dtype} {list(numbers.shape)}."
        )

    is_reversed = numbers[:, 0] > numbers[:, 1]
    if is_reversed.any():
        row = int(np.argmax(is_reversed))
        raise UsageError(
            f"exclude_ranges: row {row:,} goes from {numbers[row, 0]} back to {numbers[row, 1]}; "
            "give start, then stop."
        )
    return np.ascontiguousarray(numbers, np.int64)
