"""Smaller indexes: the rows that are held, and the number of rows that each of them stands for.

Source: He, Neubig and Berg-Kirkpatrick 2021 (arXiv:2109.04212), section 4, *greedy merging*. The
baseline is random rows. The paper visits rows in random order. Here they are visited in stored
order, so neighbours are read once.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Integer

SCRATCH_FILE = Path("scratch/counts.npy")
"""File of a draft: the number of rows that each row stands for, int32 [N]; 0: the row is not held.
"""


def merged_rows(
    blocks: Iterable[tuple[int, Any]], values: Integer[np.ndarray, " N"]
) -> Int32[np.ndarray, " N"]:
    """Merge rows greedily: each remaining row absorbs its neighbours with the same token. Returns
    the counts.

    A neighbour is absorbed once, and only if it has absorbed none itself.

    Args:
        blocks: the first row of a block, and the neighbours of its rows, int [n, k], -1 where
        missing.
        values: the token of each row.

    Row 0 absorbs row 2; row 1 has another token; row 3 then finds row 2 gone:

    >>> merged_rows([(0, np.array([[1, 2], [0, 2], [0, 3], [2, 1]]))], np.array([7, 8, 7, 7])).tolist()
    [2, 1, 0, 1]
    """
    counts = np.ones(len(values), np.int32)
    for first_row, block in blocks:
        neighbors = np.asarray(block)
        rows = np.arange(first_row, first_row + len(neighbors))

        exists = neighbors >= 0
        is_other = neighbors != rows[:, None]
        has_same_token = values[neighbors] == values[rows, None]
        is_mergeable = exists & is_other & has_same_token

        # in order, since what a row absorbs is gone for those behind it
        for index in np.flatnonzero(is_mergeable.any(axis=1)).tolist():
            row = first_row + index
            if not counts[row]:
                continue
            alike = neighbors[index][is_mergeable[index]]
            # a row that absorbed others, or is absorbed, stays as it is
            absorbed = alike[counts[alike] == 1]
            counts[absorbed] = 0
            counts[row] += len(absorbed)
    return counts


def random_rows(rows: int, share: float, seed: int) -> Int32[np.ndarray, " {rows}"]:
    """Counts of a random share of the rows, at least one row; each of these stands for itself.

    >>> random_rows(4, share=0.5, seed=0).tolist()
    [0, 0, 1, 1]
    """
    generator = np.random.default_rng(seed)
    num_chosen = max(1, round(share * rows))
    chosen = generator.choice(rows, num_chosen, replace=False)

    counts = np.zeros(rows, np.int32)
    counts[chosen] = 1
    return counts
