"""What searching on a GPU holds in its memory, by arithmetic: blocks are as large as what is free allows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.search.tensors import Room, room_on

SEARCHED = ("flat", "ivf-flat")
"""Kinds of indexes whose keys are compared on the GPU; the others stay on the CPU."""
NUMBER, ROW, VALUE = 4, 8, 4
"""Bytes of a score or a number of a key in float32, of the row of a key, and of its token."""
QUERIES = 8192
"""At a time, about."""


def search_peak(kind: str, keys: Mapping[str, Any], device: str = "cuda") -> int:
    """Bytes at once: keys that stay with their rows, pieces of those that do not, values, scores, and pairs that are
    compared one by one.

    Args:
        kind: of the index.
        keys: `rows`, `dim` and `dtype` of its datastore.
    """
    return _peak(room_on(device), *_shape(keys)) if kind in SEARCHED else 0


def _shape(keys: Mapping[str, Any]) -> tuple[int, int, int]:
    return int(keys["rows"]), int(keys["dim"]), np.dtype(keys["dtype"]).itemsize


def _peak(room: Room, rows: int, dim: int, itemsize: int) -> int:
    each = dim * itemsize + ROW
    held = min(rows * each, room.held)
    pieces = (1 if held == rows * each else 2) * NUMBER * min(room.piece, rows * dim)
    scores = 2 * NUMBER * min(room.scores, QUERIES * rows)
    pairs = 2 * NUMBER * min(room.numbers, QUERIES * rows * dim)
    return held + pieces + scores + pairs + VALUE * rows
