"""Smaller indexes: which rows are held, and how many rows each of these stands for.

Source: He, Neubig and Berg-Kirkpatrick 2021 (arXiv:2109.04212), section 4, *greedy merging*. Random rows are what it is
compared with. The paper goes through rows in random order. Here they come as they lie, so neighbours are read once.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Integer

from stages.array_files import map_arrays, save_arrays

SCRATCH_FILE = Path("scratch/counts.npy")


class HeldRows(NamedTuple):
    """Counts of rows, int32 [N]."""

    counts: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "HeldRows":
        """Rows that were chosen in a draft, mapped."""
        return cls(*map_arrays(folder / SCRATCH_FILE, 1))

    def write(self, path: Path) -> None:
        save_arrays(path, self.counts)

    def contain(self, rows: np.ndarray) -> np.ndarray:
        """Which of some rows are held, bool of their shape."""
        return self.counts[rows] > 0

    @property
    def number(self) -> int:
        return int(np.count_nonzero(self.counts))


def merged_rows(blocks: Iterable[tuple[int, Any]], values: Integer[np.ndarray, " N"]) -> Int32[np.ndarray, " N"]:
    """Counts of rows, of which each that is still there takes in those of its neighbours that hold the same token.

    A neighbour is taken in once, and only if it has taken in none itself.

    Args:
        blocks: a first row, and the neighbours of it and the rows behind, int [n, k], -1 where missing.
        values: the token of each row.

    Row 0 takes in row 2; row 1 has another token; row 3 then finds row 2 gone:

    >>> merged_rows([(0, np.array([[1, 2], [0, 2], [0, 3], [2, 1]]))], np.array([7, 8, 7, 7])).tolist()
    [2, 1, 0, 1]
    """
    counts = np.ones(len(values), np.int32)
    for first, block in blocks:
        neighbors = np.asarray(block)
        rows = np.arange(first, first + len(neighbors))
        same = (neighbors >= 0) & (neighbors != rows[:, None]) & (values[neighbors] == values[rows, None])
        for place in np.flatnonzero(same.any(axis=1)).tolist():
            if not counts[first + place]:
                continue
            found = neighbors[place][same[place]]
            taken = found[counts[found] == 1]
            counts[taken] = 0
            counts[first + place] += len(taken)
    return counts


def random_rows(rows: int, share: float, seed: int) -> Int32[np.ndarray, " {rows}"]:
    """Counts of rows, of which a share is held and stands for itself, one row at the least.

    >>> random_rows(4, share=0.5, seed=0).tolist()
    [0, 0, 1, 1]
    """
    counts = np.zeros(rows, np.int32)
    counts[np.random.default_rng(seed).choice(rows, max(1, round(share * rows)), replace=False)] = 1
    return counts
