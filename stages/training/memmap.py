"""Arrays of a training run in files of their own, read at random: memory does not grow with the corpus."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import file_entry
from stages.artifacts.durable import fsync, write_atomically
from stages.artifacts.reading import Rows
from stages.retrieval.neighbors import neighbor_tokens

ROWS = 1 << 18
"""Rows that are written at a time."""


ReadRows = Callable[[int, int], np.ndarray]
"""Rows start … stop - 1 of an array, for (start, stop)."""


def mapped(path: Path, shape: tuple[int, ...], dtype: Any, rows: ReadRows) -> np.ndarray:
    """An array in a file, memory-mapped for reading; the file is made if it is not there, or not as it was made.

    Args:
        path: an `.npy` file; it appears when all of it is written. Its digest stands beside it.
    Raises: OSError if it cannot be written, and then leaves nothing behind.
    """
    if not _is_whole(path):
        unfinished = path.with_name(f".{path.name}.tmp")
        try:
            _write(unfinished, shape, np.dtype(dtype), rows)
            fsync(unfinished)
            # A crash between the two leaves a file that its digest does not fit, which is then made again.
            write_atomically(_digest_file(path), file_entry(unfinished)["blake2b"])
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r")


def remove(path: Path) -> None:
    """Remove such a file, if it is there."""
    for file in (path, _digest_file(path)):
        file.unlink(missing_ok=True)


def _is_whole(path: Path) -> bool:
    beside = _digest_file(path)
    return path.is_file() and beside.is_file() and beside.read_bytes() == file_entry(path)["blake2b"].encode()


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.blake2b")


def _write(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], rows: ReadRows) -> None:
    """Write an array, not through a map: on a full disk that is no error but ends the process."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, shape[0], ROWS):
            block = rows(start, min(start + ROWS, shape[0]))
            file.write(np.ascontiguousarray(block, dtype).data)


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
