"""Stored keys, read by whole Zarr shards."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch


class StoredKeys:
    """Keys [rows, dim] of a datastore. Reading a part of a shard costs as much as reading all of
    it.

    Args:
        array: a Zarr array, or anything with `shape`, `dtype`, `chunks` and slicing. `shards`, or
            else `chunks`, gives the rows of a shard.
        rows_per_shard: rows read at a time, for an array without `chunks`.
    """

    def __init__(self, array: Any, rows_per_shard: int | None = None) -> None:
        self.array = array
        self.rows, self.dim = (int(n) for n in array.shape)
        self.dtype = np.dtype(array.dtype)
        self.rows_per_shard = rows_per_shard or int(
            (getattr(array, "shards", None) or array.chunks)[0]
        )

    @property
    def shards(self) -> int:
        """Number of shards; the last may be shorter."""
        return -(-self.rows // self.rows_per_shard)

    def bounds(self, shard: int) -> tuple[int, int]:
        """First row of a shard and the row after its last."""
        start = shard * self.rows_per_shard
        return start, min(start + self.rows_per_shard, self.rows)

    def read(self, shard: int) -> np.ndarray:
        """One whole shard, [rows_per_shard or fewer, dim] in the stored dtype."""
        start, stop = self.bounds(shard)
        return np.asarray(self.array[start:stop])

    def each(self, shards: Iterable[int] | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, keys) shard by shard; the next shard is read while the caller works."""
        numbers = iter(range(self.shards) if shards is None else shards)
        with ThreadPoolExecutor(1) as pool:
            shard = next(numbers, None)
            reading = None if shard is None else pool.submit(self.read, shard)
            while shard is not None and reading is not None:
                block = reading.result()
                first_row, _ = self.bounds(shard)
                # requested before the caller works, so that reading and computing overlap
                shard = next(numbers, None)
                reading = None if shard is None else pool.submit(self.read, shard)
                yield first_row, block

    def rows_between(self, start: int, stop: int) -> np.ndarray:
        """Rows start .. stop - 1, [stop - start, dim] in the stored dtype."""
        return np.asarray(self.array[start:stop])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Keys of these rows, in their order, [len(rows), dim] float32; each shard is read once."""
        out = np.empty((len(rows), self.dim), np.float32)
        groups = dict(_by_shard(rows, self.rows_per_shard))
        for (first, block), places in zip(self.each(groups), groups.values(), strict=True):
            out[places] = block[rows[places] - first]
        return out


def widened(keys: np.ndarray) -> np.ndarray:
    """Keys in float32; PyTorch converts half precision five times faster than NumPy."""
    if keys.dtype != np.float16:
        return keys.astype(np.float32, copy=False)
    return _as_tensor(keys).float().numpy()


def widen(keys: np.ndarray, out: np.ndarray) -> None:
    """Convert keys to float32, into `out`."""
    if keys.dtype == np.float16:
        torch.from_numpy(out).copy_(_as_tensor(keys))
    else:
        out[:] = keys


def _as_tensor(keys: np.ndarray) -> torch.Tensor:
    """Keys as a tensor; a copy, if they are in a file opened for reading, of which torch warns."""
    return torch.from_numpy(keys if keys.flags.writeable else keys.copy())


def take_values(array: Any, rows: np.ndarray) -> np.ndarray:
    """Entries of a one-dimensional Zarr array at these rows, in their order; each shard is read
    once.
    """
    out = np.empty(len(rows), array.dtype)
    rows_per_shard = int((array.shards or array.chunks)[0])
    for shard, places in _by_shard(rows, rows_per_shard):
        first = shard * rows_per_shard
        block = np.asarray(array[first : first + rows_per_shard])
        out[places] = block[rows[places] - first]
    return out


def _by_shard(rows: np.ndarray, rows_per_shard: int) -> Iterator[tuple[int, np.ndarray]]:
    """(shard, places in `rows` of the rows that it holds) for each shard that is needed.

    >>> [(shard, places.tolist()) for shard, places in _by_shard(np.array([5, 1, 4]), 4)]
    [(0, [1]), (1, [0, 2])]
    """
    shard_of_row = rows // rows_per_shard
    order = np.argsort(shard_of_row, kind="stable")
    shards, counts = np.unique(shard_of_row, return_counts=True)

    ends = np.cumsum(counts)
    starts = ends - counts
    for shard, start, end in zip(shards.tolist(), starts, ends, strict=True):
        yield shard, order[start:end]
