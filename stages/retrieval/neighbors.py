"""Neighbours of scored tokens: from storage, from a search of an index, or by following pointers;
and neighbours at every step of a translation.

With pointers, the next neighbours are the rows after those neighbours that held the token just
read. If too few are left, a search is made. A text is cut into streams of STREAM tokens, and each
begins with a search. Streams are read in parallel, so that their searches are made together.

Source: Alon et al. 2022 (RetoMaton, arXiv:2201.12431), without clusters: a row points to the row
after it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Int64, Integer
from torch import Tensor

from stages.artifacts.reading import CheckedGroup
from stages.encoding.key_encoder import KeyEncoder
from stages.lineage.runs import OwnRows
from stages.search.distances import exact_order
from stages.search.hidden import HiddenRows, best_visible
from stages.search.keys import StoredKeys
from stages.search.searcher import Searcher


@dataclass(frozen=True)
class Datastore:
    """Keys of a datastore, and its values, int32 [N + 1]; the last value is -1."""

    keys: StoredKeys
    values: Tensor
    metric: str
    """Metric of a search's distances: `l2` or `ip`."""
    lossless: bool
    """Whether the distances of a search equal those recomputed from the stored keys."""
    counts: Tensor | None = None
    """Number of original rows that each row stands for, int32 [N + 1], the last 0; None: one each.
    """

    @cached_property
    def token_counts(self) -> Tensor:
        """Occurrences of each token up to the largest stored one, followed by a 0, int64."""
        values = self.values[:-1]
        return values.bincount(minlength=int(values.max()) + 2)


@dataclass(frozen=True)
class FoundNeighbors:
    """Neighbours of n tokens, best first: rows of the datastore, -1 where missing, and distances.

    `searches`: number of tokens that were searched for, if others follow pointers.
    """

    ids: np.ndarray
    distances: np.ndarray
    searches: int | None = None

    @classmethod
    def none(cls, n: int, k: int, metric: str) -> "FoundNeighbors":
        """No neighbours for n tokens."""
        worst = np.inf if metric == "l2" else -np.inf
        return cls(np.full((n, k), -1, np.int64), np.full((n, k), worst, np.float32))


class StepSearch(Protocol):
    """Gives the neighbours of the rows of all sentences at every step of a translation."""

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Set the sentences of the next batch: their numbers in the split, and the tokens of their
        sources.
        """

    def search(
        self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None
    ) -> FoundNeighbors:
        """Find neighbours of queries float32 [R, d].

        Args:
            sentences: sentence of each query, as an index within the batch, int64 [R].
            rows: queries to search for, bool [R]; the others get no neighbours. None: all.
        """


class Retrieval(ABC):
    """Gives the neighbours of a range of a split's tokens."""

    needs_keys: ClassVar[bool] = True
    """Whether `find` searches with keys of the tokens."""

    @abstractmethod
    def find(
        self,
        split: str,
        start: int,
        stop: int,
        keys: np.ndarray | None,
        rows: np.ndarray | None = None,
    ) -> FoundNeighbors:
        """Neighbours of tokens [start, stop); `rows`, bool [n], selects some of them, and the
        others get none.

        Args:
            keys: float32 [n, d], if they are needed.
        """

    def find_each(
        self, split: str, ranges: Sequence[tuple[int, int]], keys: Sequence[np.ndarray]
    ) -> list[FoundNeighbors]:
        """Same as `find` for each range of tokens, with its keys."""
        return [
            self.find(split, start, stop, part)
            for (start, stop), part in zip(ranges, keys, strict=True)
        ]

    def of_texts(self, keys: np.ndarray, rows: np.ndarray | None = None) -> FoundNeighbors:
        """Neighbours of single positions of texts outside the corpus, which may find every row.

        Args:
            keys: of the positions, float32 [n, d].
            rows: positions to search for, bool [n]; the others get none. None: all.
        """
        raise NotImplementedError(f"{type(self).__name__} has neighbours of its splits alone")

    def steps(self, split: str | None = None) -> StepSearch | None:
        """Search for every step of a translation; None if that is not possible.

        Args:
            split: split of the sentences; None: they are from no split.
        """
        return None


@dataclass(frozen=True)
class ExternalMemory:
    """A datastore, the retrieval of its neighbours, and the encoder that makes search keys as its
    keys were made.
    """

    datastore: Datastore
    retrieval: Retrieval
    encoder: KeyEncoder


@dataclass(frozen=True)
class StoredNeighbors(Retrieval):
    """Precomputed neighbours; `arrays` holds `<split>/ids` and `<split>/distances`."""

    arrays: CheckedGroup
    k: int
    metric: str
    needs_keys: ClassVar[bool] = False

    def find(
        self,
        split: str,
        start: int,
        stop: int,
        keys: np.ndarray | None,
        rows: np.ndarray | None = None,
    ) -> FoundNeighbors:
        ids = self.arrays[f"{split}/ids"][start:stop][:, : self.k]
        distances = self.arrays[f"{split}/distances"][start:stop][:, : self.k]
        if rows is None:
            return FoundNeighbors(ids, distances)
        neighbors = FoundNeighbors.none(len(rows), self.k, self.metric)
        neighbors.ids[rows] = ids[rows]
        neighbors.distances[rows] = distances[rows]
        return neighbors


@dataclass(frozen=True)
class IndexSearch(Retrieval):
    """Searches an index.

    `own_rows`: the splits that the datastore was made from, with their rows. A token of these does not
    find the rows that `exclude` names.
    """

    searcher: Searcher
    k: int
    own_rows: Mapping[str, OwnRows]
    exclude: str
    hidden: HiddenRows = field(default_factory=HiddenRows)
    """Rows that no query finds, of texts or of splits."""

    def find(
        self,
        split: str,
        start: int,
        stop: int,
        keys: np.ndarray | None,
        rows: np.ndarray | None = None,
    ) -> FoundNeighbors:
        assert keys is not None
        return self.search(keys, self.forbidden(split, start, stop), rows)

    def search(
        self, keys: np.ndarray, forbidden: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> FoundNeighbors:
        """Neighbours of keys, or of the selected `rows` of them, outside their forbidden ranges,
        int64 [n, 2].
        """
        if rows is None:
            return FoundNeighbors(*self._best(keys, forbidden))
        neighbors = FoundNeighbors.none(len(rows), self.k, self.searcher.metric)
        ids, distances = self.at(keys, rows, forbidden)
        neighbors.ids[rows] = ids
        neighbors.distances[rows] = distances
        return neighbors

    def forbidden(self, split: str, start: int, stop: int) -> np.ndarray | None:
        """Rows that tokens [start, stop) may not find, int64 [n, 2]: first <= row < last; None:
        they may find all.
        """
        if split not in self.own_rows:
            return None
        return self.own_rows[split].forbidden(self.exclude, start, stop)

    def at(
        self, keys: np.ndarray, rows: np.ndarray, forbidden: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours and distances of the selected rows of keys."""
        return self._best(keys[rows], None if forbidden is None else forbidden[rows])

    def _best(
        self, keys: np.ndarray, forbidden: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and distances of the k nearest rows that are neither forbidden nor hidden."""
        if not self.hidden.number:
            return self.searcher.search(keys, self.k, forbidden)

        def search(width: int) -> tuple[np.ndarray, np.ndarray]:
            return self.searcher.search(keys, width, forbidden)

        worst = np.inf if self.searcher.metric == "l2" else -np.inf
        return best_visible(search, self.k, self.searcher.rows, self.hidden, worst)

    def find_each(
        self, split: str, ranges: Sequence[tuple[int, int]], keys: Sequence[np.ndarray]
    ) -> list[FoundNeighbors]:
        """Same as `find` for each range of tokens, in one search: several ranges take little longer
        than one.
        """
        limits = [self.forbidden(split, start, stop) for start, stop in ranges]
        # A rule leaves rows out for all ranges of a split, or for none.
        present = [limit for limit in limits if limit is not None]
        forbidden = np.concatenate(present) if present else None
        ids, distances = self._best(np.concatenate(keys), forbidden)

        results = []
        start = 0
        for range_keys in keys:
            part = slice(start, start + len(range_keys))
            results.append(FoundNeighbors(ids[part], distances[part]))
            start = part.stop
        return results

    def of_texts(self, keys: np.ndarray, rows: np.ndarray | None = None) -> FoundNeighbors:
        return self.search(keys, None, rows)

    def steps(self, split: str | None = None) -> "IndexSteps":
        return IndexSteps(self, None if split is None else self.own_rows.get(split))


@dataclass
class IndexSteps:
    """Step search of an index, for the rows of all sentences together.

    `own_rows`: rows of the translated split, if the datastore was built from it: a sentence must not
    find its own rows.
    """

    index: IndexSearch
    own_rows: OwnRows | None = None
    _numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), init=False)

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        self._numbers = np.asarray(numbers, np.int64)

    def search(
        self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None
    ) -> FoundNeighbors:
        if self.own_rows is None:
            return self.index.search(queries, None, rows)
        firsts = self.own_rows.doc_offsets[self._numbers[sentences]].tolist()
        limits = [self.own_rows.forbidden("document", first, first + 1) for first in firsts]
        forbidden = np.concatenate([limit for limit in limits if limit is not None])
        return self.index.search(queries, forbidden, rows)


def neighbor_tokens(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Tokens of neighbours, int64 [n, k], -1 where one is missing.

    Args:
        ids: integers [n, k], rows of a datastore, -1 where a neighbour is missing.
        values: int32 [N], the token of every row of the datastore, at least one; in memory or
        mapped.

    >>> neighbor_tokens(np.array([[2, -1]]), np.array([7, 8, 9])).tolist()
    [[9, -1]]
    """
    present = ids >= 0
    return np.where(present, values[np.where(present, ids, 0)], -1).astype(np.int64)


STREAM = 128
"""Tokens of a stream."""


@dataclass(frozen=True)
class PointerSearch(Retrieval):
    """Follows pointers if at least `fewest` are left, else searches; `tokens` reads a range of a
    split's ids.
    """

    search: IndexSearch
    datastore: Datastore
    tokens: Callable[[str, int, int], np.ndarray]
    fewest: int

    def find(
        self,
        split: str,
        start: int,
        stop: int,
        keys: np.ndarray | None,
        rows: np.ndarray | None = None,
    ) -> FoundNeighbors:
        """Neighbours of tokens [start, stop), which follow those of the token before where they can.

        Streams of STREAM tokens advance together, so that a step makes one search.
        """
        assert keys is not None and rows is None, "it is not said which tokens are searched for"
        tokens = self.tokens(split, start, stop)
        values = self.datastore.values[:-1].cpu().numpy()
        forbidden = self.search.forbidden(split, start, stop)
        neighbors = FoundNeighbors.none(stop - start, self.search.k, self.datastore.metric)
        is_searched = np.zeros(stop - start, bool)

        # Positions STREAM apart do not follow each other, so one search serves all of them.
        for step in range(STREAM):
            positions = np.arange((step - start) % STREAM, stop - start, STREAM)
            pointers = followed(neighbors.ids[positions - 1], tokens[positions - 1], values)
            # Streams and ranges begin without pointers, so that they do not wait for each other.
            pointers[(positions == 0) | (step == 0)] = -1
            if forbidden is not None:
                first = forbidden[positions, :1]
                last = forbidden[positions, 1:]
                pointers[(pointers >= first) & (pointers < last)] = -1
            neighbors.ids[positions] = pointers

            num_pointers = (pointers >= 0).sum(1)
            is_searched[positions] = num_pointers < self.fewest
            searched = positions[is_searched[positions]]
            ids, distances = self.search.at(keys, searched, forbidden)
            neighbors.ids[searched] = ids
            neighbors.distances[searched] = distances

        # Pointers come without distances.
        is_followed = ~is_searched
        ids, distances = exact_order(
            self.datastore.keys,
            keys[is_followed],
            neighbors.ids[is_followed],
            self.datastore.metric,
            self.search.k,
        )
        neighbors.ids[is_followed] = ids
        neighbors.distances[is_followed] = distances
        return FoundNeighbors(neighbors.ids, neighbors.distances, searches=int(is_searched.sum()))

    def of_texts(self, keys: np.ndarray, rows: np.ndarray | None = None) -> FoundNeighbors:
        # A single position has no neighbours before it, whose pointers it could follow.
        return self.search.of_texts(keys, rows)


def followed(
    rows: Integer[np.ndarray, "n k"],
    tokens: Integer[np.ndarray, " n"],
    values: Integer[np.ndarray, " N"],
) -> Int64[np.ndarray, "n k"]:
    """The rows after those that hold the token of each position, in their order, then -1.

    Args:
        rows: retrieved at each position, -1 where missing. values: the token of every row.

    >>> followed(np.array([[3, 0, 2]]), np.array([7]), np.array([7, 8, 9, 7, 5])).tolist()
    [[4, 1, -1]]
    """
    # A missing row, -1, reads the last value, and has no next one.
    holds_token = values[rows] == tokens[:, None]
    next_rows = rows + 1
    is_pointer = holds_token & (rows >= 0) & (next_rows < len(values))
    pointers = np.where(is_pointer, next_rows, -1)
    # A stable sort of the mask brings pointers to the front and keeps their order.
    order = np.argsort(~is_pointer, axis=1, kind="stable")
    return np.take_along_axis(pointers, order, 1)
