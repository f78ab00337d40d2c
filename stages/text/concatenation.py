"""Arrays saved in many files, read as one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Part(NamedTuple):
    """Some consecutive rows."""

    rows: int
    load: Callable[[], np.ndarray]


def saved(path: Path, rows: int, shift: int = 0) -> Part:
    """The rows of a `.npy` file, plus a constant."""

    def load() -> np.ndarray:
        values: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False) if rows else np.zeros(0, np.int64)
        return values + shift if shift else values

    return Part(rows, load)


class Concatenation:
    """Parts end to end; only those that a slice touches are loaded."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._ends = np.cumsum([part.rows for part in parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), copied."""
        found = []
        first = int(np.searchsorted(self._ends, start, side="right"))
        for part, end in zip(self._parts[first:], self._ends[first:].tolist(), strict=True):
            begin = end - part.rows
            if begin >= stop:
                break
            found.append(part.load()[max(0, start - begin) : stop - begin])
        return np.concatenate(found)
