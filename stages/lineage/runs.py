"""Source and token of each row of a datastore, as runs of rows. Only arrays, no artifacts."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from stages.search.config import forbidden_rows


@dataclass(frozen=True)
class Runs:
    """Rows in runs: the rows of run r are consecutive tokens of one source, starting at its token
    `places[r]`.

    `starts` int64 [R + 1]: first rows, and the number of all rows; `sources`, `places` int64 [R].
    Rows of one source are contiguous and in the order of its tokens.
    """

    starts: np.ndarray
    sources: np.ndarray
    places: np.ndarray

    @classmethod
    def whole(cls, rows: int) -> Self:
        """Row i is token i of the only source."""
        return cls(np.array([0, rows]), np.zeros(1, np.int64), np.zeros(1, np.int64))

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def places_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source, and place in the source, of the given rows: two int64 [n].

        >>> runs = Runs(np.array([0, 3, 5]), np.array([0, 0]), np.array([0, 7]))
        >>> runs.places_of(np.array([2, 3, 4]))[1].tolist()
        [2, 7, 8]
        """
        run = np.searchsorted(self.starts, rows, side="right") - 1
        return self.sources[run], self.places[run] + rows - self.starts[run]

    def block(self, source: int) -> tuple[int, int]:
        """First row of a source, and the row after its last."""
        first, last = np.flatnonzero(self.sources == source)[[0, -1]]
        return int(self.starts[first]), int(self.starts[last + 1])

    def rows_from(self, source: int, places: np.ndarray) -> np.ndarray:
        """For each of `places`, the first row of a source at or after it; if there is none, the row
        after its last.

        >>> runs = Runs(np.array([0, 3, 5]), np.array([0, 0]), np.array([0, 7]))
        >>> runs.rows_from(0, np.array([1, 5, 7, 8, 9])).tolist()
        [1, 3, 3, 4, 5]
        """
        runs_of_source = np.flatnonzero(self.sources == source)
        run = np.searchsorted(self.places[runs_of_source], places, side="right") - 1
        # for a place before the first run, the answer is that run's first row
        before = run < 0
        run = runs_of_source[run.clip(0)]
        rows = np.minimum(self.starts[run] + places - self.places[run], self.starts[run + 1])
        return np.where(before, self.starts[runs_of_source[0]], rows)

    def keep(self, kept_rows: "KeptRows") -> Self:
        """The runs of the rows that stay."""
        edges = np.unique(np.concatenate([self.starts[:-1], kept_rows.ranges[:, 0]]))
        stays = kept_rows.before(edges + 1) > kept_rows.before(edges)
        edges = edges[stays]
        starts = np.append(kept_rows.before(edges), kept_rows.rows)
        return type(self)(starts, *self.places_of(edges))

    def renumbered(self, sources: np.ndarray) -> Self:
        """The same runs with source s renumbered to `sources[s]`."""
        return type(self)(self.starts, sources[self.sources], self.places)

    def followed_by(self, rows: int, source: int) -> Self:
        """The same runs, followed by rows for tokens 0 … rows - 1 of another source."""
        return type(self)(
            np.append(self.starts, self.rows + rows),
            np.append(self.sources, source),
            np.append(self.places, 0),
        )


@dataclass(frozen=True)
class KeptRows:
    """Rows that stay when others go: `ranges` int64 [K, 2], rows first <= row < last, rising, with
    gaps between.
    """

    ranges: np.ndarray

    @classmethod
    def of_documents(cls, offsets: np.ndarray, forgotten: np.ndarray) -> Self:
        """All rows except those of some documents.

        Args:
            offsets: int64 [D + 1], rows where documents start, and the number of rows.
            forgotten: int64 [F], numbers of documents.

        >>> KeptRows.of_documents(np.array([0, 3, 5, 9, 10]), np.array([1, 2])).ranges.tolist()
        [[0, 3], [9, 10]]
        """
        stays = np.ones(len(offsets) - 1, bool)
        stays[forgotten] = False
        # a document without rows would divide a range in two
        stays &= np.diff(offsets) > 0
        starts = offsets[:-1][stays]
        stops = offsets[1:][stays]

        # documents that follow each other make one range
        has_gap = starts[1:] != stops[:-1]
        is_any = [True] if len(starts) else []
        opens = np.append(is_any, has_gap).astype(bool)
        closes = np.append(has_gap, is_any).astype(bool)
        return cls(np.stack([starts[opens], stops[closes]], axis=1))

    @property
    def rows(self) -> int:
        """Number of rows that stay."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    @cached_property
    def new_starts(self) -> np.ndarray:
        """New first row of each range, then the number of rows that stay, int64 [K + 1]."""
        lengths = self.ranges[:, 1] - self.ranges[:, 0]
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def before(self, rows: np.ndarray) -> np.ndarray:
        """Number of rows that stay before each given row, its new number if it stays; int64 of the
        same shape.

        >>> KeptRows(np.array([[0, 3], [9, 12]])).before(np.array([2, 3, 5, 9, 11, 12])).tolist()
        [2, 3, 3, 3, 5, 6]
        """
        if not len(self.ranges):
            return np.zeros(np.shape(rows), np.int64)
        range_ = np.searchsorted(self.ranges[:, 0], rows, side="right") - 1
        inside = np.minimum(rows, self.ranges[range_, 1]) - self.ranges[range_, 0]
        return np.where(range_ < 0, 0, self.new_starts[range_] + inside)

    def contains(self, rows: np.ndarray) -> np.ndarray:
        """Whether each given row stays, bool of the same shape."""
        return self.before(rows + 1) > self.before(rows)

    def between(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """The new rows [start, stop) in pieces: (first of its new rows, first and last of its old
        ones, exclusive).
        """
        starts = self.new_starts
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        pieces = []
        for (begin, end), old in zip(
            pairwise(starts[first : last + 1].tolist()),
            self.ranges[first:last, 0].tolist(),
            strict=True,
        ):
            a = max(begin, start)
            b = min(end, stop)
            pieces.append((a, old + a - begin, old + b - begin))
        return pieces


@dataclass(frozen=True)
class OwnRows:
    """The rows of a datastore that come from a searched split: a token must not find its own row.

    `doc_offsets` [D + 1]: start of each document of the split, and the end.
    """

    runs: Runs
    source: int
    doc_offsets: np.ndarray

    def forbidden(self, exclude: str, start: int, stop: int) -> np.ndarray | None:
        """Range of rows that each token of [start, stop) must not find, int64 [stop - start, 2];
        like `forbidden_rows`, in rows."""
        places = forbidden_rows(exclude, start, stop, self.doc_offsets)
        return None if places is None else self.runs.rows_from(self.source, places)

    @property
    def stored(self) -> tuple[int, int]:
        """Number of tokens, from the split's start, with keys in contiguous rows, and the first of
        these rows.
        """
        run = int(np.flatnonzero(self.runs.sources == self.source)[0])
        first, after = self.runs.starts[run : run + 2].tolist()
        return (after - first, first) if self.runs.places[run] == 0 else (0, first)
