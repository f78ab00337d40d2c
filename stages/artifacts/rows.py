"""Rows of the large arrays of artifacts, read straight from the files of their shards."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout


class Rows:
    """Rows of an array, in memory of their own.

    Of a Zarr array that lies on the disk as `ArrayLayout` writes it, the bytes of the rows are read from the files of
    its shards, in a fourth of the time that Zarr takes. Any other array, and a shard that is not there or not whole,
    is left to the array.

    Args:
        array: a Zarr array, or anything with `shape`, `dtype` and slicing.
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self._root = _root(array)
        self._layout = None if self._root is None else _layout(self._root, array)

    @property
    def shards(self) -> tuple[int, ...]:
        """The shape of a shard, as the array says."""
        return tuple(getattr(self.array, "shards", None) or self.array.chunks)

    def __getitem__(self, part: slice) -> np.ndarray:
        """Rows that follow each other."""
        start, stop, step = part.indices(self.shape[0])
        if step != 1:
            raise ValueError("rows are read one after the other")
        return self.read(start, stop)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) in the dtype of the array, as `array[start:stop]`."""
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        rows = self._from_files(start, max(start, stop))
        return np.asarray(self.array[start:stop]) if rows is None else rows

    def _from_files(self, start: int, stop: int) -> np.ndarray | None:
        """Rows from the shards' files; None where that cannot be."""
        layout, root = self._layout, self._root
        if layout is None or root is None:
            return None
        rows = np.empty((stop - start, *layout.shape[1:]), layout.dtype)
        while start < stop:
            shard = start // layout.rows_per_shard
            first = shard * layout.rows_per_shard
            end = min(stop, first + layout.rows_per_shard)
            part = rows[len(rows) - (stop - start) :][: end - start]
            if not _read(root / layout.shard_file(shard), layout.shard_bytes, (start - first) * layout.row_bytes, part):
                return None
            start = end
        return rows


class RowsByName(dict[str, Rows]):
    """Rows of the arrays of a group, by name; each array is opened when it is first asked for."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self._group = group

    def __missing__(self, name: str) -> Rows:
        self[name] = Rows(self._group[name])
        return self[name]


def _root(array: Any) -> Path | None:
    """The folder that a Zarr array's name begins in, if it lies on the disk."""
    from zarr import Array
    from zarr.storage import LocalStore

    return array.store.root if isinstance(array, Array) and isinstance(array.store, LocalStore) else None


def _layout(root: Path, array: Any) -> ArrayLayout | None:
    """How an array below the root lies on the disk, if it is as memlm writes arrays."""
    rows = (array.shards or array.chunks)[0] if array.shape else 0
    layout = ArrayLayout(array.path, array.shape, array.dtype, rows) if rows else None
    return layout if layout is not None and layout.describes(root) else None


def _read(file: Path, file_bytes: int, at: int, rows: np.ndarray) -> bool:
    """Fill rows with the bytes of a file; whether it is as long as it must be, and has them all."""
    content = rows.reshape(-1).view(np.uint8).data
    try:
        with file.open("rb", buffering=0) as opened:
            if os.fstat(opened.fileno()).st_size != file_bytes:
                return False
            opened.seek(at)
            done = 0
            while done < len(content) and (count := opened.readinto(content[done:])):
                done += count
    except FileNotFoundError:
        return False
    return done == len(content)
