"""Groups of inverted lists that a thread compares with queries at a time."""

import numpy as np

from stages.search.blocks import ListBlocks, ListQueries
from stages.search.tiles import Tile
from stages.threads import ThreadPool

GROUP_SCORES = 1 << 22
GROUP_KEYS = 8192
GROUPS = 2
"""Most scores and most keys of a group of lists, and groups per thread that the remaining work must
allow.

Large groups need few calls of NumPy; smaller ones at the end keep all threads busy."""

KEY_SCORES = 16
"""Scores that can be computed in the time it takes to decode a key."""


def list_groups(
    blocks: ListBlocks, visits: ListQueries, pool: ThreadPool, more: int = 1
) -> list[list[int]]:
    """Groups of visited lists with keys; a thread compares the lists of a group together.

    All lists of a group are kept, or none is. A long list is alone in its group.

    Args:
        more: factor on the keys of a group.
    """
    sizes = blocks.lists.sizes
    is_visited = visits.counts > 0
    work = np.where(is_visited, sizes * (visits.counts + KEY_SCORES), 0)
    remaining_work = int(work.sum())

    groups: list[list[int]] = []
    group_work = 0
    group_keys = 0
    group_kind = 0
    for number in np.flatnonzero(work).tolist():
        list_work = int(work[number])
        list_keys = int(sizes[number])
        # a long list has a kind of its own, so no other list joins it
        is_long = blocks.parts[number] > 1
        kind = -1 - number if is_long else 1 + (number < blocks.kept)

        max_work = min(GROUP_SCORES, remaining_work // (GROUPS * pool.threads))
        has_room = group_work + list_work <= max_work
        has_room = has_room and group_keys + list_keys <= more * GROUP_KEYS
        if kind != group_kind or not has_room:
            groups.append([])
            remaining_work -= group_work
            group_work = 0
            group_keys = 0
            group_kind = kind

        groups[-1].append(number)
        group_work += list_work
        group_keys += list_keys
    return groups


def list_tiles(which: np.ndarray, counts: np.ndarray, places: list[slice]) -> list[Tile]:
    """Tiles of the queries of each list (`counts` of them) and the slice of its keys."""
    ends = np.cumsum(counts).tolist()
    return [
        (which[first:stop], place)
        for first, stop, place in zip([0, *ends], ends, places, strict=False)
    ]
