"""Reads and writes NumPy files (`.npy`); an array that does not fit on the disk raises an error."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


@dataclass(frozen=True)
class _Written:
    """A file without a descriptor, as NumPy sees it.

    NumPy writes to a file with a descriptor through its own C stream. It does not notice if closing
    that stream fails for lack of space: the file is then cut without an error.
    """

    write: Callable[[bytes], int]


def save_arrays(path: Path, *arrays: np.ndarray) -> None:
    """Write arrays one after the other, each like `np.save`; read them with `np.load` from the
    opened file.

    Raises: OSError if they cannot be written completely.
    """
    with path.open("wb") as file:
        for array in arrays:
            np.save(_Written(file.write), array, allow_pickle=False)


def map_arrays(path: Path, count: int) -> list[np.ndarray]:
    """The first `count` arrays of a file of `save_arrays`, memory-mapped: only the parts in use are
    loaded.
    """
    arrays = []
    with path.open("rb") as file:
        for _ in range(count):
            npy.read_magic(file)
            shape, _, dtype = npy.read_array_header_1_0(file)
            at = file.tell()
            # Mapping zero bytes is an error.
            mapped = np.memmap(file, dtype, "r", at, shape) if shape[0] else np.zeros(0, dtype)
            arrays.append(np.asarray(mapped))
            file.seek(at + mapped.nbytes)
    return arrays
