"""Rows that no search finds although an index still holds them: those of deleted documents."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float32, Int64, Integer

Neighborhood = tuple[Int64[np.ndarray, "n k"], Float32[np.ndarray, "n k"]]
"""Rows and distances, best first."""


class HiddenRows:
    """Ranges of rows that are hidden; another thread may hide more at any time.

    >>> hidden = HiddenRows()
    >>> hidden.hide(np.array([[3, 5], [9, 10]]))
    >>> hidden.hide(np.array([[4, 7]]))
    >>> hidden.number, hidden.contain(np.array([-1, 2, 3, 6, 7, 9])).tolist()
    (5, [False, False, True, True, False, True])
    """

    def __init__(self) -> None:
        # One assignment replaces all ranges, so a search sees those before or those after.
        self._ranges = np.zeros((0, 2), np.int64)

    @property
    def number(self) -> int:
        """Number of hidden rows."""
        starts, stops = self._ranges.T
        return int((stops - starts).sum())

    def hide(self, ranges: Int64[np.ndarray, "h 2"]) -> None:
        """Hide rows start <= row < stop of each range, besides those that are hidden already."""
        self._ranges = _joined(np.concatenate([self._ranges, ranges]))

    def contain(self, rows: Integer[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
        """Whether each row is hidden; missing ones, -1, are not."""
        ranges = self._ranges
        # The last range that begins at or before the row is the only one that can hold it.
        number = np.searchsorted(ranges[:, 0], rows, side="right") - 1
        # Rows before the first range get the last end, before which there is no row.
        stops = np.append(ranges[:, 1], -1)
        return rows < stops[number]


def _joined(ranges: np.ndarray) -> np.ndarray:
    """The same rows in sorted ranges that neither touch nor overlap; empty ones are left out.

    >>> _joined(np.array([[4, 7], [3, 5], [7, 8], [9, 9]])).tolist()
    [[3, 8]]
    """
    is_filled = ranges[:, 0] < ranges[:, 1]
    ranges = ranges[is_filled]
    if not len(ranges):
        return ranges

    order = np.argsort(ranges[:, 0], kind="stable")
    starts, stops = ranges[order].T

    # A range opens a new one if it begins beyond all before it; the one before is then the last.
    reached = np.maximum.accumulate(stops)
    opens = np.append(True, starts[1:] > reached[:-1])
    closes = np.append(opens[1:], True)
    return np.stack([starts[opens], reached[closes]], axis=1)


def best_visible(
    search: Callable[[int], Neighborhood],
    k: int,
    rows: int,
    hidden: HiddenRows,
    worst: float = np.inf,
) -> Neighborhood:
    """The k best rows that are not hidden: rows and distances [n, k], best first.

    Args:
        search: gives the w best rows of all, for any w.
        rows: number of rows in the index.
        worst: distance of a missing row, -1.

    Of the rows 0, 1, 2, … by rising distance, rows 0 and 2 are hidden:

    >>> hidden = HiddenRows()
    >>> hidden.hide(np.array([[0, 1], [2, 3]]))
    >>> nearest = lambda w: (np.arange(w)[None], np.arange(w, dtype=np.float32)[None])
    >>> best_visible(nearest, 2, 9, hidden)[0].tolist()
    [[1, 3]]
    """
    # Few hidden rows are found together with k others; with many, most of them lie elsewhere.
    num_hidden_near = min(k, hidden.number)
    width = min(k + num_hidden_near, max(k, rows))
    while True:
        ids, distances = search(width)
        is_visible = (ids >= 0) & ~hidden.contain(ids)
        has_enough = is_visible.sum(axis=1) >= k
        if width >= rows or has_enough.all():
            break
        width = min(2 * width, rows)

    # A stable sort of the mask brings visible rows to the front and keeps their order.
    order = np.argsort(~is_visible, axis=1, kind="stable")[:, :k]
    is_neighbor = np.take_along_axis(is_visible, order, axis=1)
    nearest_ids = np.take_along_axis(ids, order, axis=1)
    nearest_distances = np.take_along_axis(distances, order, axis=1)
    return (
        np.where(is_neighbor, nearest_ids, -1),
        np.where(is_neighbor, nearest_distances, np.float32(worst)),
    )
