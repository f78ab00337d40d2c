"""Sequences of unequal length as rows that are padded at the end."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def padded(sequences: Sequence[np.ndarray], filler: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of tokens as rows int64 [B, L], and which of their tokens count, bool [B, L]; at least one sequence.

    >>> rows, mask = padded([np.array([5, 6]), np.array([7])], filler=0)
    >>> rows.tolist(), mask.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]])
    """
    lengths = np.array([len(one) for one in sequences])
    return padded_rows(np.concatenate(sequences), np.cumsum(lengths) - lengths, lengths, filler)


def padded_rows(ids: Any, starts: np.ndarray, lengths: np.ndarray, filler: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of sequences that lie in one array: each begins at a start, and has a length of at least one.

    Args:
        ids: an array, or anything that is indexed alike.
    """
    place = np.arange(lengths.max())
    mask = place < lengths[:, None]
    rows = np.where(mask, ids[np.where(mask, starts[:, None] + place, 0)], filler)
    return rows.astype(np.int64), mask
