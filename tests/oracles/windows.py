"""Shared windows of two texts, compared one by one."""

from collections.abc import Sequence
from itertools import pairwise


def covered(
    ids: Sequence[int], offsets: Sequence[int], texts: Sequence[Sequence[int]], length: int
) -> list[bool]:
    """For each token, whether a window of `length` tokens around it, within its document, is in
    one of the texts.

    A window has at least one type of token for five tokens.
    """
    windows = {tuple(text[n : n + length]) for text in texts for n in range(len(text) - length + 1)}
    windows = {window for window in windows if 5 * len(set(window)) >= length}
    inside = [False] * len(ids)
    for start, stop in pairwise(offsets):
        for n in range(start, stop - length + 1):
            if tuple(ids[n : n + length]) in windows:
                inside[n : n + length] = [True] * length
    return inside
