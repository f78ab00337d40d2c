"""NumPy's files (`.npy`), of which an array that does not fit on the disk is an error."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


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
