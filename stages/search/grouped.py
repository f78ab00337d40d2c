"""IVF search of many queries, list by list: all queries that probe a list share one matrix product.

FAISS searches query by query, and reads each list again for each query. Here a list is read and
decoded once for a whole block of queries.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import faiss
import numpy as np

from stages.search.blocks import ListBlocks, ListQueries
from stages.search.bounds import ScoreBounds
from stages.search.exact import ScanningSearcher
from stages.search.faiss_lists import CANDIDATE_BYTES, FaissLists
from stages.search.keys import widened
from stages.search.list_groups import list_groups, list_tiles
from stages.search.lists import InvertedLists
from stages.search.projection import SAMPLE, ShortBlocks, ShortQueries, learn_axes, short_bytes
from stages.search.ranking import pick
from stages.search.scan import NARROW, QueryBlock, Scratch, widest
from stages.search.searcher import block_bytes
from stages.search.tensor_lists import TensorLists
from stages.search.tensor_search import Comparison, TensorQueries
from stages.search.tensors import MemoryBudget
from stages.search.top_k import TooMany, TopKBuffer
from stages.threads import ThreadPool, slices, thread_pool

MOST_PAIRS = 1 << 26
PAIR_BYTES = 8
"""Pairs of all queries that are held at a time: 0.5 GB, and no more than a block of a search may
take.
"""

HELD_BYTES = 128 << 20
"""Bytes of decoded keys that are kept, since each list is compared twice for a block of queries."""

SHORT_BYTES = 384 << 20
"""Most bytes of short vectors and their keys; a larger index has no short vectors."""

MOST_NEAREST = 64
"""Most neighbours for which short vectors pay: far neighbours let half of a list pass along a few
axes.
"""

QUERIES = 256
"""Queries whose nearest lists a thread finds at a time."""

SHORT_GROUPS = 4
"""Factor on the keys that a thread takes, where short vectors are ready."""

TRIED_LISTS = 16
TRIED_QUERIES = 128
"""Lists, and queries of each, in which short vectors are tried first: a group of lists costs too
much if they fail.
"""

Engine = Literal["auto", "lists", "faiss"]
"""Comparison of queries with keys: matrix products list by list, FAISS's loops, or the faster one."""

FAISS_THREADS = 8
"""Fewest threads on which `auto` takes FAISS's loops.

Products were 1.3 to 4.4 times as fast on two threads. On sixteen they had .62 of FAISS's speed at
k = 4, .52 at 64 and .34 at 1,024 (docs/results/data/speed/search.toml). Between them nothing was
measured; 8 is about where a straight line between the logarithms crosses 1.
"""


class GroupedSearcher(ScanningSearcher):
    """Searches an IVF index (flat, scalar- or product-quantised codes) list by list.

    A query reads its `probe` nearest lists. If it finds fewer than k allowed rows, it is searched
    again in four times the lists, up to all of them.

    Args:
        engine: how queries are compared with whole keys on the CPU, by `l2`; neighbours and
            distances are the same. All else is compared by `lists`.
    """

    def __init__(
        self,
        ivf: Any,
        metric: str,
        probe: int,
        lossless: bool,
        device: str = "cpu",
        engine: Engine = "auto",
    ) -> None:
        super().__init__(rows=ivf.ntotal, dim=ivf.d, metric=metric, lossless=lossless)
        self.ivf = ivf
        self.probe = probe
        self.device = device
        self.engine = engine
        # the mean of all centroids is near the keys, so products lose few digits
        self.origin = ivf.quantizer.reconstruct_n(0, ivf.nlist).mean(axis=0)
        self.lists = InvertedLists(ivf)
        self.blocks = ListBlocks(self.lists, self.origin, None if self.lists.mapped else HELD_BYTES)

    @cached_property
    def _short(self) -> ShortBlocks | None:
        """Short vectors of all keys; None if they do not pay or do not fit into memory."""
        # axes are learnt for distances of whole keys
        if self.metric != "l2" or not self.lossless:
            return None
        # all keys of a list are read at once, so it must not come in parts
        has_parts = self.blocks.parts.max(initial=1) > 1
        fits = short_bytes(self.rows, self.dim) <= SHORT_BYTES
        if not self.blocks.kept or has_parts or not fits:
            return None

        # every n-th list, so that the sample is spread over all lists
        step = max(1, self.rows // SAMPLE)
        filled = np.flatnonzero(self.lists.sizes)
        numbers = filled[::step].tolist()
        sample = np.concatenate([widened(self.lists.keys(number)) for number in numbers])
        axes = learn_axes(sample, self.origin)
        return None if axes is None else ShortBlocks(self.lists, self.origin, axes)

    def reaches_all(self, effort: int) -> bool:
        return self._probed(effort) == self.ivf.nlist

    def _probed(self, effort: int) -> int:
        """Number of lists that a query reads."""
        return min(self.ivf.nlist, self.probe * 4**effort)

    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        if self._takes_faiss(exclude, pool.threads):
            return self._nearest_by_faiss(queries, k, exclude, effort, pool)
        return self._nearest_by_lists(queries, k, exclude, effort, pool)

    def _takes_faiss(self, exclude: np.ndarray | None, threads: int) -> bool:
        """Whether FAISS's loops compare a block of queries; see `engine`."""
        if self.engine == "lists" or (self.engine == "auto" and threads < FAISS_THREADS):
            return False
        # lists on the disk are read once for a block of queries, not once for each of them
        holds_keys = self.metric == "l2" and self.lossless and not self.lists.mapped
        # FAISS fetches excluded rows, which are dropped: a long range would cost more than it saves
        return holds_keys and widest(exclude) <= NARROW

    def _nearest_by_faiss(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `nearest`. Queries with too many equal rows are compared by lists."""
        scores = np.empty((len(queries), k), np.float32)
        rows = np.empty((len(queries), k), np.int64)
        engine = FaissLists(self.ivf, self.lists)
        probe = self._probed(effort)

        # as many queries at a time as memory holds candidates of
        query_bytes = CANDIDATE_BYTES * (engine.candidates(k, exclude) + probe)
        step = max(1, block_bytes() // query_bytes)
        for part in slices(len(queries), step):
            excluded = pick(exclude, part)
            nearest_lists = self._nearest_lists(queries[part], probe, pool)
            result = engine.nearest(queries[part], nearest_lists, k, excluded, pool)
            scores[part] = result.scores
            rows[part] = result.ids

            pending = part.start + np.flatnonzero(~result.complete)
            if len(pending):
                scores[pending], rows[pending] = self._nearest_by_lists(
                    queries[pending], k, pick(exclude, pending), effort, pool
                )
        return scores, rows

    def _nearest_by_lists(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, pool: ThreadPool
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `nearest`; keys of a list are compared with all queries that probe it."""
        try:
            block = self.block(queries, exclude, pool)
            return self._find(block, k, effort, pool).best(k, pool)
        except TooMany:
            pass

        # many keys are equal, so fewer queries are searched at a time
        middle = len(queries) // 2
        halves = [
            self._nearest_by_lists(queries[part], k, pick(exclude, part), effort, pool)
            for part in (slice(None, middle), slice(middle, None))
        ]
        scores = np.concatenate([half_scores for half_scores, _ in halves])
        rows = np.concatenate([half_rows for _, half_rows in halves])
        return scores, rows

    def _find(self, queries: QueryBlock, k: int, effort: int, pool: ThreadPool) -> TopKBuffer:
        """Candidate pairs that include the k best of each query. Raises: TooMany if memory cannot
        hold them.
        """
        probe = self._probed(effort)
        scratch = Scratch()
        nearest_lists = self._nearest_lists(queries.vectors, probe, pool)
        bounds = ScoreBounds(self.blocks).of(queries, nearest_lists, k, pool, scratch)
        visits = ListQueries(nearest_lists, self.ivf.nlist, pool)

        max_pairs = int(visits.counts @ self.lists.sizes)
        # all pairs of a single query are held in any case, since it cannot be halved
        if len(queries) > 1:
            max_pairs = min(max_pairs, MOST_PAIRS, block_bytes() // PAIR_BYTES)
        buffer = TopKBuffer(len(queries), max_pairs)

        blocks = self._short if k <= MOST_NEAREST else None
        short = None if blocks is None else ShortQueries(queries, bounds, blocks)
        if blocks is not None and short is not None and not blocks.compared:
            self._try_out(blocks, short, visits, probe, scratch)

        def scan(numbers: list[int]) -> None:
            # queries that probe these lists, list after list
            which = visits.of(numbers) // probe
            counts = visits.counts[numbers]
            if blocks is not None and short is not None and blocks.pays:
                short_keys, places = blocks.short(numbers, scratch)
                tiles = list_tiles(which, counts, places)
                for pairs in short.within(tiles, short_keys, scratch):
                    buffer.add(*pairs)
                return
            for keys, places in self.blocks.each(numbers, scratch):
                tiles = list_tiles(which, counts, places)
                for pairs in queries.within(tiles, keys, bounds, scratch):
                    buffer.add(*pairs)

        more = 1 if blocks is None else SHORT_GROUPS
        groups = list_groups(self.blocks, visits, pool, more=more)
        pool(scan, groups)
        # other searches find them useless, too
        if blocks is not None and not blocks.pays:
            self._short = None
        return buffer

    def _try_out(
        self,
        blocks: ShortBlocks,
        short: ShortQueries,
        visits: ListQueries,
        probe: int,
        scratch: Scratch,
    ) -> None:
        """Count the pairs that short vectors leave in a few lists; see TRIED_LISTS."""
        visited = np.flatnonzero((visits.counts > 0) & (self.lists.sizes > 0))
        step = max(1, len(visited) // TRIED_LISTS)
        for number in visited[::step].tolist():
            keys, places = blocks.short([number], scratch)
            queries = visits.of([number])[:TRIED_QUERIES] // probe
            short.try_out(queries, places[0], keys, scratch)

    def _nearest_lists(self, queries: np.ndarray, probe: int, pool: ThreadPool) -> np.ndarray:
        """Numbers of the lists that each query probes, nearest first, int64 [n, probe].

        A graph over the centroids may not reach all lists. Then the last entries are -1, unless all
        lists are wanted.
        """
        out = np.empty((len(queries), probe), np.int64)

        def find(part: slice) -> None:
            out[part] = self._lists_by_faiss(queries[part], probe)

        pool(find, slices(len(queries), QUERIES))
        return out

    def _lists_by_faiss(self, queries: np.ndarray, probe: int) -> np.ndarray:
        """See `_nearest_lists`; in one call of FAISS."""
        _, lists = self.ivf.quantizer.search(queries, probe)
        if probe < self.ivf.nlist:
            return lists

        # all lists are wanted: those that a graph did not reach come last
        all_lists = np.arange(probe)
        is_incomplete = (lists < 0).any(axis=1)
        for query in np.flatnonzero(is_incomplete):
            row = lists[query]
            row[row < 0] = np.setdiff1d(all_lists, row)
        return lists

    def list_ranks(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Number of lists that a query reads before the one with a row, int64 [n, m]; `probe` for
        unread lists and row -1.

        Args:
            queries: [n, dim].
            rows: rows of the index for each query, int [n, m].
        """
        # One list more than there are stands for no list: index -1 reaches the extra entry.
        no_list = self.ivf.nlist
        list_of_row = np.full(self.rows + 1, no_list)
        for number in self.lists.filled:
            list_of_row[self.lists.ids(number)] = number
        with thread_pool() as pool:
            nearest_lists = self._nearest_lists(queries, self.probe, pool)

        ranks = np.empty(rows.shape, np.int64)
        for query, lists in enumerate(nearest_lists):
            # A graph over the centroids leaves -1 where it reaches no list.
            is_list = lists >= 0
            rank_of_list = np.full(no_list + 1, self.probe)
            rank_of_list[lists[is_list]] = np.flatnonzero(is_list)
            ranks[query] = rank_of_list[list_of_row[rows[query]]]
        return ranks

    # On another device

    @cached_property
    def _on_device(self) -> TensorLists:
        return TensorLists(self.lists, self._centres(), self._lists_by_faiss, self.device)

    @property
    def memory(self) -> MemoryBudget:
        return self._on_device.budget

    def comparisons(self, queries: TensorQueries, effort: int) -> Iterator[Comparison]:
        return self._on_device.comparisons(queries, self._probed(effort))

    def _centres(self) -> np.ndarray | None:
        """The centroid of each list, [lists, dim]; None unless the index compares a query with all
        centroids.
        """
        quantizer = self.ivf.quantizer
        is_flat = isinstance(quantizer, faiss.IndexFlat)
        if not is_flat or quantizer.metric_type != self.ivf.metric_type:
            return None
        return np.asarray(quantizer.reconstruct_n(0, self.ivf.nlist))
