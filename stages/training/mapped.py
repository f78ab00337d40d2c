"""What a training run looks up at random, kept on disk: its memory does not grow with the corpus."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.durable import fsync

ROWS = 1 << 18
"""Rows that are written at a time."""


def mapped(path: Path, shape: tuple[int, ...], dtype: Any, rows: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """An array in a file, memory-mapped for reading; the file is made if it is not there.

    Args:
        path: an `.npy` file; it appears when all of it is written.
        rows: rows start … stop - 1 of the array, for (start, stop).
    """
    if not path.exists():
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            array = np.lib.format.open_memmap(unfinished, "w+", dtype, shape)
            for start in range(0, shape[0], ROWS):
                array[start : start + ROWS] = rows(start, min(start + ROWS, shape[0]))
            array.flush()
            del array
            fsync(unfinished)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r")
