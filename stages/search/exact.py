"""Search that scans keys with matrix products, and exact search, which scans every stored key,
shard after shard.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, partial

import numpy as np

from stages.search.keys import StoredKeys, widen
from stages.search.ranking import allowed_rows, pick
from stages.search.scan import KeyBlock, QueryBlock, Scratch, squared_lengths
from stages.search.searcher import Attempt, Searcher
from stages.search.tensor_search import (
    Comparison,
    KeysOnDevice,
    TensorQueries,
    WithAll,
    search_on_device,
)
from stages.search.tensors import MemoryBudget
from stages.search.top_k import TopKBuffer
from stages.threads import ThreadPool, in_turn, slices, thread_pool

FEW_QUERIES = 32
"""Most queries that are searched in a single thread."""


class ScanningSearcher(Searcher):
    """Finds candidates with matrix products, then computes their scores without cancellation.

    Attributes:
        device: device of the products, `cpu` or `cuda`.
        origin: [dim] float32, a point among the keys.
    """

    device: str
    origin: np.ndarray

    def attempt(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> Attempt:
        if self.device == "cpu":
            with thread_pool(small=self.is_small(len(queries))) as pool:
                scores, ids = self.nearest(queries, k, exclude, effort, pool)
        else:
            scores, ids = search_on_device(self, queries, k, exclude, effort)
        return Attempt(scores, ids, self._is_enough(ids, exclude, effort))

    @property
    def candidate_bytes(self) -> int:
        """Bytes of host memory; on a device other than the CPU, the host holds only the result."""
        return 24 if self.device == "cpu" else 12

    def is_small(self, queries: int) -> bool:
        """Whether a search for this number of queries does not pay for more threads."""
        return queries <= FEW_QUERIES

    def block(
        self, queries: np.ndarray, exclude: np.ndarray | None, pool: ThreadPool = in_turn
    ) -> QueryBlock:
        """Queries in the form that products need."""
        return QueryBlock(queries, self.origin, self.metric, exclude, pool)

    def _is_enough(self, ids: np.ndarray, exclude: np.ndarray | None, effort: int) -> np.ndarray:
        """Mask [n] of the queries that found all the rows they may, up to k, or compared all rows."""
        num_queries, k = ids.shape
        if self.reaches_all(effort):
            return np.ones(num_queries, bool)

        num_allowed = allowed_rows(self.rows, num_queries, exclude)
        num_wanted = np.minimum(k, num_allowed)
        # missing rows come last, so the last wanted one shows whether all are here
        last = ids[np.arange(num_queries), np.maximum(num_wanted, 1) - 1]
        return (last >= 0) | (num_wanted == 0)

    @abstractmethod
    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows [n, k] of the best allowed rows that this effort reaches; see `Attempt`."""

    @abstractmethod
    def reaches_all(self, effort: int) -> bool:
        """Whether this effort compares every row."""

    @property
    @abstractmethod
    def memory(self) -> MemoryBudget:
        """Memory that a search on `device` may take, if that is not the CPU."""

    @abstractmethod
    def comparisons(self, queries: TensorQueries, effort: int) -> Iterator[Comparison]:
        """Comparisons of queries on `device` with the keys that this effort reaches."""


ORIGIN_ROWS = 256
QUERIES = 256
KEYS = 4096
"""Queries and keys that a thread compares at a time."""
FEW_SCORES = 1 << 20
"""Most scores, queries times keys, that are computed in a single thread."""
FEWEST_QUERIES = 16
"""Fewest queries that are worth a thread of their own."""
HELD_BYTES = 1 << 28
"""Most bytes of keys that stay in memory between searches for few queries, as while a text is
written.
"""
PAIRS_KEPT = 2
"""Times k: pairs of a query, on average, beyond which only the k best are kept."""


class ExactSearcher(ScanningSearcher):
    """Searches stored keys without an index. Memory holds one shard, and the next one while it is
    read; after a search for few queries it holds all keys, if they are few.

    Args:
        compared: receives the number of keys that a scan has compared so far.
    """

    def __init__(
        self,
        keys: StoredKeys,
        metric: str,
        device: str = "cpu",
        compared: Callable[[int], None] = lambda keys: None,
    ) -> None:
        super().__init__(rows=keys.rows, dim=keys.dim, metric=metric, lossless=True)
        self.keys = keys
        self.device = device
        self.compared = compared
        self._held: list[KeyBlock] | None = None
        # with an origin near the keys, products have small terms and lose few digits
        self.origin = keys.rows_between(0, min(keys.rows, ORIGIN_ROWS)).mean(
            axis=0, dtype=np.float32
        )

    def is_small(self, queries: int) -> bool:
        return queries * self.rows <= FEW_SCORES

    def reaches_all(self, effort: int) -> bool:
        return True

    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        num_queries = len(queries)
        queries_per_thread = -(-num_queries // pool.threads)
        queries_per_part = min(QUERIES, max(FEWEST_QUERIES, queries_per_thread))
        parts = slices(num_queries, queries_per_part)

        narrowings = []
        for part in parts:
            block = self.block(queries[part], pick(exclude, part))
            narrowings.append(Narrowing(block, k))

        # the outer loop is over shards, so each shard is read and widened once for all queries
        scratch = Scratch()
        for keys in self._blocks(num_queries, pool, scratch):
            scan = partial(Narrowing.scan, keys=keys, scratch=scratch)
            pool(scan, narrowings)
            num_compared = int(keys.rows[-1]) + 1
            self.compared(num_compared)

        scores = np.empty((num_queries, k), np.float32)
        rows = np.empty((num_queries, k), np.int64)

        def finish(index: int) -> None:
            part = parts[index]
            scores[part], rows[part] = narrowings[index].buffer.best(k, in_turn)

        pool(finish, range(len(parts)))
        return scores, rows

    def _blocks(self, queries: int, pool: ThreadPool, scratch: Scratch) -> Iterator[KeyBlock]:
        """All keys, shard by shard, ready for products; see HELD_BYTES."""
        if self._held is not None:
            yield from self._held
            return

        # a vector and a length in float32, and a row of eight bytes
        key_bytes = 4 * (self.dim + 3)
        holds = self.is_small(queries) and self.rows * key_bytes <= HELD_BYTES
        blocks = []
        for first, block in self.keys.each():
            keys = self._ready(first, block, pool, scratch)
            if holds:
                blocks.append(keys)
            yield keys

        # only a scan that was not broken off has all of them
        if holds:
            self._held = blocks

    def _ready(self, first: int, block: np.ndarray, pool: ThreadPool, scratch: Scratch) -> KeyBlock:
        """Prepare the keys of a shard that begins at row `first`."""
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

    @cached_property
    def _on_device(self) -> KeysOnDevice:
        return KeysOnDevice(self.keys, self.device)

    @property
    def memory(self) -> MemoryBudget:
        return self._on_device.budget

    def comparisons(self, queries: TensorQueries, effort: int) -> Iterator[Comparison]:
        num_compared = 0
        for keys in self._on_device:
            yield WithAll(queries, keys, self.memory.scores)
            num_compared += len(keys.rows)
            self.compared(num_compared)


class Narrowing:
    """The best rows of some queries so far, while keys are streamed; bounds narrow as better rows
    are found.

    Attributes:
        bounds: [queries] float32, the largest rough score that may still be one of the k best.
        radius: distance from the origin to the farthest key so far.
        buffer: the pairs within the bounds.
    """

    def __init__(self, queries: QueryBlock, k: int) -> None:
        self.queries = queries
        self.k = k
        self.bounds = np.full(len(queries), np.inf, np.float32)
        self.radius = np.float32(0)
        self.buffer = TopKBuffer(len(queries))
        self._all_queries = np.arange(len(queries))

    def scan(self, keys: KeyBlock, scratch: Scratch) -> None:
        self.radius = max(self.radius, keys.radius)
        # a piece of fewer than k keys gives no bound
        piece_size = max(KEYS, PAIRS_KEPT * self.k)
        for part in slices(len(keys.rows), piece_size):
            self._scan(keys.part(part), scratch)

    def _scan(self, piece: KeyBlock, scratch: Scratch) -> None:
        """Add the pairs of a piece that are within the bounds."""
        if np.isinf(self.bounds).any():
            bounds = self.queries.bounds(piece, self.k)
            self.bounds = np.minimum(self.bounds, bounds)

        all_keys = slice(0, len(piece.rows))
        tiles = [(self._all_queries, all_keys)]
        for pairs in self.queries.within(tiles, piece, self.bounds, scratch):
            self.buffer.add(*pairs)

        # a narrower bound lets fewer pairs through, but ranking costs as much time as a few pieces
        max_pairs = PAIRS_KEPT * self.k * len(self.queries)
        if self.buffer.number > max_pairs:
            self._narrow()

    def _narrow(self) -> None:
        """Keep the k best pairs of each query, and bound its scores by the last of them."""
        kth_score = self.buffer.keep_best(self.k, in_turn)
        # rough scores lack the constant of the query, exact scores include it
        kth_rough = kth_score - self.queries.constant
        bounds = self.queries.reach(kth_rough, self.radius)
        self.bounds = np.minimum(self.bounds, bounds)
