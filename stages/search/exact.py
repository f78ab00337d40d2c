"""Search by scanning keys with matrix products; exact search, which scans every stored key, shard after shard."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from stages.search.keys import StoredKeys, widen
from stages.search.ranking import allowed_rows
from stages.search.scan import KeyBlock, QueryBlock, Scratch, squared_lengths
from stages.search.searcher import Attempt, Searcher
from stages.search.top_k import TopKBuffer
from stages.threads import ThreadPool, in_turn, slices, thread_pool

if TYPE_CHECKING:
    from stages.search.tensor_search import KeysOnDevice

FEW_QUERIES = 32
"""Up to so many are not worth other threads."""


class ScanningSearcher(Searcher):
    """Candidates from matrix products, then their scores without cancellation.

    Attributes:
        device: where the products are computed, `cpu` or `cuda`.
        origin: [dim] float32 a point among the keys.
    """

    device: str
    origin: np.ndarray

    def attempt(self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int) -> Attempt:
        if self.device == "cpu":
            with thread_pool(small=self.is_small(len(queries))) as pool:
                scores, ids = self.nearest(queries, k, exclude, effort, pool)
        else:
            scores, ids = self.nearest_on_device(queries, k, exclude, effort)
        return Attempt(scores, ids, self._is_enough(ids, exclude, effort))

    @property
    def candidate_bytes(self) -> int:
        """Memory of the host; on another device than the CPU the result alone takes some here."""
        return 24 if self.device == "cpu" else 12

    def is_small(self, queries: int) -> bool:
        """Whether a search of this many queries is not worth other threads."""
        return queries <= FEW_QUERIES

    def block(self, queries: np.ndarray, exclude: np.ndarray | None, pool: ThreadPool = in_turn) -> QueryBlock:
        """Queries as products take them."""
        return QueryBlock(queries, self.origin, self.metric, exclude, pool)

    def _is_enough(self, ids: np.ndarray, exclude: np.ndarray | None, effort: int) -> np.ndarray:
        """Queries [n] bool that have found as many rows as they may see, or for which all were looked at."""
        if self.reaches_all(effort):
            return np.ones(len(ids), bool)
        enough = np.minimum(ids.shape[1], allowed_rows(self.rows, len(ids), exclude))
        last = ids[np.arange(len(ids)), np.maximum(enough, 1) - 1]  # missing ones come last
        return (last >= 0) | (enough == 0)

    @abstractmethod
    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows [n, k] of the best allowed rows that this effort looks at, as `Attempt` has them."""

    @abstractmethod
    def reaches_all(self, effort: int) -> bool:
        """Whether this effort looks at every row."""

    @abstractmethod
    def nearest_on_device(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same as `nearest`, computed on `device`."""


ORIGIN_ROWS = 256
QUERIES, KEYS = 256, 4096
"""Queries that a thread compares at a time, and with how many keys."""
FEW_SCORES = 1 << 20
"""Up to so many, of all queries and keys, are not worth other threads."""
FEWEST_QUERIES = 16
"""Number of queries whose product with keys is worth a thread of its own."""
KEPT, PIECES = 2, 64
"""All but the k best of each query are forgotten once there are so many times k pairs of each, or after so many pieces
of keys."""


class ExactSearcher(ScanningSearcher):
    """Searches stored keys without an index; holds one shard and the one being read.

    Args:
        compared: hears how many keys each scan has seen so far.
    """

    def __init__(
        self, keys: StoredKeys, metric: str, device: str = "cpu", compared: Callable[[int], None] = lambda keys: None
    ) -> None:
        super().__init__(rows=keys.rows, dim=keys.dim, metric=metric, lossless=True)
        self.keys, self.device, self.compared = keys, device, compared
        self._on_device: KeysOnDevice | None = None
        # near the keys, products are of small numbers, and lose few digits
        self.origin = keys.rows_between(0, min(keys.rows, ORIGIN_ROWS)).mean(axis=0, dtype=np.float32)

    def is_small(self, queries: int) -> bool:
        return queries * self.rows <= FEW_SCORES

    def reaches_all(self, effort: int) -> bool:
        return True

    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        size = min(QUERIES, max(FEWEST_QUERIES, -(-len(queries) // pool.threads)))
        parts = slices(len(queries), size)
        narrowings = [
            Narrowing(self.block(queries[part], None if exclude is None else exclude[part]), k) for part in parts
        ]
        scratch = Scratch()
        # shards outside, queries inside: each shard is read and widened once for all queries
        for first, block in self.keys.each():
            keys = self._ready(first, block, pool, scratch)
            pool(partial(Narrowing.scan, keys=keys, scratch=scratch), narrowings)
            self.compared(first + len(block))
        scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)

        def finish(number: int) -> None:
            scores[parts[number]], rows[parts[number]] = narrowings[number].found.best(k, in_turn)

        pool(finish, range(len(parts)))
        return scores, rows

    def _ready(self, first: int, block: np.ndarray, pool: ThreadPool, scratch: Scratch) -> KeyBlock:
        """The keys of a shard, whose first row is given."""
        keys = KeyBlock(
            np.arange(first, first + len(block)),
            np.empty(block.shape, np.float32),
            np.empty(len(block), np.float32),
        )

        def fill(part: slice) -> None:
            widen(block[part], keys.vectors[part])
            squared_lengths(keys.vectors[part], self.origin, keys.lengths[part], scratch)

        pool(fill, slices(len(block), KEYS))
        return keys

    # On another device

    def nearest_on_device(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        from stages.search.tensor_search import KeysOnDevice, TensorQueries, WithAll, find

        on_device = self._on_device = self._on_device or KeysOnDevice(self.keys, self.device)

        def ready(some: np.ndarray, exclude: np.ndarray | None) -> TensorQueries:
            return TensorQueries(some, self.origin, self.metric, exclude, self.device, on_device.budget.numbers)

        def compare(asked: TensorQueries) -> Iterator[WithAll]:
            seen = 0
            for keys in on_device:
                yield WithAll(asked, keys, on_device.budget.scores)
                seen += len(keys.rows)
                self.compared(seen)

        return find(queries, exclude, k, self.rows, ready, compare)


class Narrowing:
    """The best of some queries while keys stream past; bounds become narrower as better rows are found."""

    def __init__(self, queries: QueryBlock, k: int) -> None:
        self.queries, self.k = queries, k
        self.everyone = np.arange(len(queries))
        self.bounds, self.radius = np.full(len(queries), np.inf, np.float32), np.float32(0)
        self.found, self.pieces = TopKBuffer(len(queries), PIECES), 0

    def scan(self, keys: KeyBlock, scratch: Scratch) -> None:
        step, self.radius = max(KEYS, KEPT * self.k), max(self.radius, keys.radius)
        for part in slices(len(keys.rows), step):
            self._scan(keys.part(part), scratch)

    def _scan(self, piece: KeyBlock, scratch: Scratch) -> None:
        if np.isinf(self.bounds).any():
            self.bounds = np.minimum(self.bounds, self.queries.bounds(piece, self.k))
        everything = [(self.everyone, slice(0, len(piece.rows)))]
        for some in self.queries.within(everything, piece, self.bounds, scratch):
            self.found.add(some.which * PIECES + self.pieces, some.counts, some.packed)
        self.pieces += 1
        # a narrow bound lets fewer pairs through, but ranking them costs as much as some pieces
        if self.found.pairs > KEPT * self.k * len(self.queries) or self.pieces == PIECES:
            self._narrow()

    def _narrow(self) -> None:
        # exact scores have the query's own term, rough ones lack it
        kth = self.found.keep_best(self.k, in_turn) - self.queries.constant
        self.bounds, self.pieces = np.minimum(self.bounds, self.queries.reach(kth, self.radius)), 1
