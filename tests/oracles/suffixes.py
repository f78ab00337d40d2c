"""Contexts as tuples of symbols, compared with each other one by one."""

import numpy as np

LONGEST = 255

Context = tuple[int, ...]


def contexts(ids: np.ndarray, starts: np.ndarray) -> list[Context]:
    """The context of each token backwards: ids + 2, LONGEST at most, then 1 for the border, or what
    is beyond.
    """
    begins = np.repeat(starts[:-1], np.diff(starts))
    return [
        (*(ids[begin:i].astype(int)[::-1][:LONGEST] + 2).tolist(), 1)
        for i, begin in enumerate(begins)
    ]


def shared(one: Context, other: Context) -> int:
    """Symbols that two contexts begin with, LONGEST at most."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return min(same, LONGEST)
