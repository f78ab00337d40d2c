"""Datastores and indexes over arrays, with or without a store. Free of torch until a search."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stages.errors import UsageError, shortened
from stages.search.config import IndexConfig, Keys

if TYPE_CHECKING:
    import numpy as np

    from stages.memory.entries import Entries
    from stages.search.searcher import Searcher


class Datastore:
    """Keys and values: row i holds the representation of a context, and the token that followed it."""

    def __init__(self, keys: Any, values: Any) -> None:
        """Args: keys float16 or float32 [rows, dim], values int [rows]; of NumPy, torch on a CPU,
        or Zarr.
        """
        if len(keys.shape) != 2 or tuple(values.shape) != (keys.shape[0],):
            raise UsageError(
                f"keys are [rows, dim] and values [rows], not {[*keys.shape]} and {[*values.shape]}."
            )
        self._keys, self._values = (_numpy(array) for array in (keys, values))

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
        rows, keys, values = count(rows, "rows"), self.keys, self.values
        for start in range(0, len(values), rows):
            yield keys[start : start + rows], values[start : start + rows]


class Index:
    """The keys of a datastore, ready to be searched."""

    def __init__(
        self, datastore: Datastore, index: str = "auto", metric: str = "l2", **settings: Any
    ) -> None:
        """Args: a kind or FAISS factory string, `l2` or `ip`, and other settings of `memlm
        build-index`.
        """
        from stages.search.automatic import resolve

        self._data = datastore
        (rows, dim), dtype = datastore.keys.shape, datastore.keys.dtype
        keys = Keys(rows, dim, dtype.name)
        self._settings = resolve(
            IndexConfig.model_validate({"index": index, "metric": metric, **settings}), keys
        )

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
            queries: [n, dim], or [dim] for one.
            exclude_ranges: int64 [n, 2], rows start <= row < stop that a query may not find; None:
            it may find all.
        Returns: ids int64 [n, k], best first, -1 where there are fewer; distances float32 [n, k],
            squared L2, or inner products.
        """
        import numpy as np

        dim, dtype = self.searcher.dim, self.datastore.keys.dtype
        try:
            wanted = np.atleast_2d(np.asarray(queries)).astype(dtype).astype(np.float32)
        except (TypeError, ValueError):
            raise UsageError(
                f"queries are numbers, [n, {dim}], not {shortened(repr(queries))}."
            ) from None
        if wanted.ndim != 2 or wanted.shape[1] != dim:
            raise UsageError(f"queries are [n, {dim}], not {list(np.shape(queries))}.")
        if count(k, "k") > self.searcher.rows:  # the answer has room for all k
            raise UsageError(
                f"k is the {self.searcher.rows:,} rows of the datastore at the most, not {k:,}."
            )
        return self.searcher.search(wanted, k, exclude_ranges)

    def entries(self, queries: Any, k: int, exclude_ranges: Any = None) -> "Entries":
        """Scores and tokens of the nearest rows of each query, to be read as memory; arguments as
        of `search`.
        """
        import numpy as np
        import torch

        from stages.memory.external import Neighbors, external_entries, scores_from_distances

        ids, distances = self.search(queries, k, exclude_ranges)
        scores = scores_from_distances(torch.from_numpy(distances), self.searcher.metric)
        values = torch.from_numpy(np.append(np.asarray(self.datastore.values[:], np.int64), -1))
        return external_entries(Neighbors(torch.from_numpy(ids), scores, values))


def count(value: Any, name: str) -> int:
    """A whole number from 1 on, as a user gave it. Raises: UsageError for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise UsageError(f"{name} is a whole number, 1 or more, not {shortened(repr(value))}.")
    return int(value.__index__())


def _numpy(array: Any) -> Any:
    """A tensor as an array that shares its memory; other arrays as they are."""
    return array.detach().numpy() if hasattr(array, "detach") else array
