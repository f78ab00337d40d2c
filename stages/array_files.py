"""NumPy's files (`.npy`), of which an array that does not fit on the disk is an error."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


@dataclass(frozen=True)
class _Written:
    """A file to NumPy that has no descriptor.

    Into one that has, NumPy writes by a C stream of its own, and does not notice where the last bytes find no room when
    that is closed: what is left is cut short without an error.
    """

    write: Callable[[bytes], int]


def save_arrays(path: Path, *arrays: np.ndarray) -> None:
    """Write arrays one after the other, each as `np.save` does, to be read by `np.load` from the opened file.

    Raises: OSError if they cannot be written whole.
    """
    with path.open("wb") as file:
        for array in arrays:
            np.save(_Written(file.write), array, allow_pickle=False)


def map_arrays(path: Path, count: int) -> list[np.ndarray]:
    """The first arrays of a file of `save_arrays`, mapped: only what is looked at comes into memory."""
    arrays = []
    with path.open("rb") as file:
        for _ in range(count):
            npy.read_magic(file)
            shape, _, dtype = npy.read_array_header_1_0(file)
            at = file.tell()
            # To map no bytes is an error.
            mapped = np.memmap(file, dtype, "r", at, shape) if shape[0] else np.zeros(0, dtype)
            arrays.append(np.asarray(mapped))
            file.seek(at + mapped.nbytes)
    return arrays
