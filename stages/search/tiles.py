"""Tiles of a table of scores: some queries, and a slice of the keys that they are compared with."""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float32, Int64

from stages.search.top_k import runs
from stages.threads import slices

TILE_SCORES = 1 << 19
"""Scores that a thread computes at a time: 2 MB, so that they are used while they are in the cache.
"""

Tile = tuple[Int64[np.ndarray, " q"], slice]
"""Numbers of some queries, and the slice of a block's keys that they are compared with."""


def cut_tile(whole: Tile) -> Iterator[Tile]:
    """A tile cut by queries into tiles of at most TILE_SCORES scores, or of a single query."""
    queries, part = whole
    step = max(1, TILE_SCORES // max(1, part.stop - part.start))
    for rows in slices(len(queries), step):
        yield queries[rows], part


def side_by_side(tiles: Iterable[Tile], min_width: int) -> Iterator[list[Tile]]:
    """Groups of tiles whose common table has at most TILE_SCORES scores; tiles of few keys stay
    alone.
    """
    # a table is as wide as its widest tile: tiles narrower than `min_width` would be mostly padding
    group: list[Tile] = []
    num_queries = 0
    width = 0
    for queries, part in tiles:
        tile_width = part.stop - part.start
        table_scores = (num_queries + len(queries)) * max(tile_width, width)
        is_padding = min(tile_width, width) < min_width
        if group and (is_padding or table_scores > TILE_SCORES):
            yield group
            group = []
            num_queries = 0
            width = 0
        group.append((queries, part))
        num_queries += len(queries)
        width = max(tile_width, width)
    if group:
        yield group


def num_scores(tile: Tile) -> int:
    """Number of scores in a tile."""
    queries, keys = tile
    return len(queries) * (keys.stop - keys.start)


def small_tiles(tiles: Iterable[Tile], max_scores: int) -> Iterator[list[Tile]]:
    """Groups of small tiles with at most `max_scores` scores together, or of a single tile."""
    group: list[Tile] = []
    group_scores = 0
    for whole in tiles:
        for tile in cut_tile(whole):
            tile_scores = num_scores(tile)
            if group and group_scores + tile_scores > max_scores:
                yield group
                group = []
                group_scores = 0
            group.append(tile)
            group_scores += tile_scores
    if group:
        yield group


def smallest_of(
    scores: Float32[np.ndarray, "t m"], depth: int, rising: bool
) -> Float32[np.ndarray, "t w"]:
    """The smallest `depth` scores of each row, or all of them; reorders the given rows.

    >>> smallest_of(np.array([[3.0, 1.0, 2.0]], np.float32), 2, rising=True).tolist()
    [[1.0, 2.0]]
    """
    if depth < scores.shape[1]:
        scores.partition(depth - 1, axis=1)
        scores = scores[:, :depth]
    if rising:
        scores.sort(axis=1)
    return scores


def hide(table: np.ndarray, columns: Int64[np.ndarray, "q 2"], value: float | bool) -> None:
    """Put a value in the columns start … stop - 1 of each row of a table [q, m].

    >>> table = np.zeros((2, 3))
    >>> hide(table, np.array([[0, 2], [1, 9]]), 1)
    >>> table.tolist()
    [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    width = table.shape[1]
    # columns of a range are consecutive, so one flat assignment hides all ranges without a mask of
    # the table
    starts, stops = columns.clip(0, width).T
    row_starts = np.arange(0, table.size, width)
    table.reshape(-1)[runs(row_starts + starts, stops - starts)] = value
