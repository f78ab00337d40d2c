"""Search on a device other than the CPU. Rough scores choose candidates, and exact scores order
them.

Each query gets a few candidates more than k, whose exact scores are computed without cancellation.
No shape depends on the scores, so the host does not wait for the device. Bounds show whether
rounding could have cost one of the k best, as among many equal keys. Such a query is searched again
with more candidates.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from stages.search.keys import StoredKeys
from stages.search.ranking import MISSING, pick, slack
from stages.search.scan import NARROW, ROUNDING, widest
from stages.search.searcher import GROWTH
from stages.search.tensors import (
    AsyncResults,
    MemoryBudget,
    TensorKeys,
    memory_budget,
    moved,
    packed,
    rows_at,
    scores_of,
    smallest,
)
from stages.threads import slices

SPARE = 28
"""Candidates beyond k at the first try, unless `slack(k)` is more."""
FINISHED = 1 << 20
"""Neighbours that are sorted and copied to the host at a time: 8 MB."""


ROW_BYTES = 8
"""Bytes of a row's number."""


class TensorQueries:
    """Queries [n, d] on a device, like `QueryBlock`; a rough score is the key's bias plus its
    product with factors.

    Attributes:
        factors: [n, d], multiplied by keys minus the origin.
        constant: [n] difference between the exact score and the rough one.
        exclude: [n, 2] ranges of rows that each may not see, or None.
        numbers: as in `MemoryBudget`.
        hides: whether excluded rows are hidden in rough scores; short ranges are dropped from the
        candidates instead.
    """

    def __init__(
        self,
        queries: np.ndarray,
        origin: np.ndarray,
        metric: str,
        exclude: np.ndarray | None,
        device: str,
        numbers: int,
    ) -> None:
        self.device = device
        self.l2 = metric == "l2"
        self.numbers = numbers
        self.vectors = moved(queries, device)
        self.origin = moved(origin, device)
        self.exclude = None if exclude is None else moved(exclude, device)
        self.widest = widest(exclude)

        # |k - q|² = |k - o|² - 2 (k - o)·(q - o) + |q - o|²: the last term is the same for all keys
        centred = self.vectors - self.origin
        self.factors = -2 * centred if self.l2 else -self.vectors
        self.constant = centred.square().sum(dim=1) if self.l2 else -(self.vectors @ self.origin)
        self._lengths = self.vectors.norm(dim=1)
        self._origin_length = self.origin.norm()

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def hides(self) -> bool:
        return self.widest > NARROW

    def seeing_all(self) -> "TensorQueries":
        """The same queries without excluded rows."""
        queries = copy(self)
        queries.exclude = None
        queries.widest = 0
        return queries

    def depth(self, k: int) -> int:
        """See `QueryBlock.depth`."""
        return k if self.hides else k + self.widest

    def hidden(self, which: slice | Tensor, rows: Tensor) -> Tensor | None:
        """Mask of the rows [*q or 1, m] that these queries may not see, bool [*q, m]; None: they
        may see all.
        """
        if self.exclude is None:
            return None
        start, stop = self.exclude[which].unbind(dim=-1)
        return (rows >= start[..., None]) & (rows < stop[..., None])

    def bias(self, centred: Tensor) -> Tensor:
        """Squared-length term of the keys, relative to the origin, [m, d] -> [m]."""
        return centred.square().sum(dim=1) if self.l2 else centred.new_zeros(len(centred))

    def limit(self, kth: Tensor, which: slice, radius: Tensor) -> Tensor:
        """The largest rough score that a row at least as near as this exact score [q] can have.

        It allows for rounding like `QueryBlock.reach` and `QueryBlock.allowed`.
        """
        constant = self.constant[which]
        rough = kth - constant
        max_product = self._lengths[which] * (radius + self._origin_length)
        magnitude = constant if self.l2 else 2 * max_product
        return rough + 2 * ROUNDING * (magnitude + rough.abs())


class Comparison(Protocol):
    """Comparison of queries with some keys.

    Attributes:
        keys: the keys.
        radius: distance from the origin to the farthest key, [].
        step: queries that are compared at a time.
    """

    keys: TensorKeys
    radius: Tensor
    step: int

    def nearest(self, which: slice, count: int) -> tuple[Tensor, Tensor]:
        """Find the `count` smallest rough scores of these queries, and the places of their keys in
        `keys`.

        Both are [q, c]; c is smaller than `count` if there are fewer keys. A score is +inf where
        there is no key.
        """


class TensorSearch:
    """Search for the k best keys of each query, among keys that are streamed in parts.

    Args:
        spare: further candidates, in case of rounding.
        keys: the largest number of keys in all parts.

    Attributes:
        complete: bool [n], True if no other row can be one of the k best.
    """

    def __init__(self, queries: TensorQueries, k: int, spare: int, keys: int) -> None:
        self.queries = queries
        self.k = k
        # with a place more than there are keys, an empty one proves that none was left out
        self.count = min(queries.depth(k) + spare, keys + 1)

        # candidates so far [n, count]: rough scores, and exact ones with rows, `packed`
        num_queries = len(queries)
        shape = (num_queries, self.count)
        device = queries.device
        self._rough = torch.full(shape, torch.inf, device=device)
        self._pairs = torch.full(shape, MISSING, device=device)

        self._radius = torch.zeros((), device=device)
        self.complete = torch.zeros(num_queries, dtype=torch.bool, device=device)

    def run(self, comparisons: Iterable[Comparison], put: Callable[[slice, Tensor], None]) -> None:
        """Run all comparisons; `put` receives the pairs [q, k] of `best` for some queries once they
        are final.
        """
        num_queries = len(self.queries)
        step = max(1, FINISHED // self.k)
        max_queries = max(1, self.queries.numbers // self.count)

        index = -1
        for index, (comparison, is_last) in enumerate(_with_last(comparisons)):
            self._radius = torch.maximum(self._radius, comparison.radius)
            for which in slices(num_queries, min(comparison.step, max_queries)):
                self._offer(which, comparison, fresh=index == 0)
                if is_last:
                    # results are copied while later queries are compared, so copying takes no extra
                    # time
                    for part in slices(which.stop, step, which.start):
                        put(part, self.best(part))

        # without keys, nothing was compared and no result was put
        if index < 0:
            for part in slices(num_queries, step):
                put(part, self.best(part))

    def best(self, which: slice) -> Tensor:
        """The k best of some queries, `packed`, best first, [q, k]."""
        candidates = self._pairs[which]
        pairs = candidates.sort(dim=1).values[:, : self.k]
        num_queries, num_pairs = pairs.shape
        padding = pairs.new_full((num_queries, self.k - num_pairs), MISSING)
        pairs = torch.cat((pairs, padding), dim=1)

        # a row that is no candidate has a rough score of at least the last one here
        kth_score = scores_of(pairs[:, -1])
        limit = self.queries.limit(kth_score, which, self._radius)
        last_rough = self._rough[which].amax(dim=1)
        # the negation makes nan complete, so that the search ends for such queries
        is_beyond = ~(last_rough <= limit)
        self.complete[which] = is_beyond | (last_rough == torch.inf)
        return pairs

    def _offer(self, which: slice, comparison: Comparison, fresh: bool) -> None:
        """Merge the candidates of some queries among these keys with earlier ones, and keep the
        nearest.

        Args:
            fresh: whether these are the first keys, so that there is nothing to merge with.
        """
        # [q, c] each, c <= count
        rough, places = comparison.nearest(which, self.count)
        pairs = self._compared(which, places, comparison.keys)
        pairs = pairs.masked_fill_(rough == torch.inf, MISSING)
        if fresh:
            num_candidates = rough.shape[1]
            self._rough[which, :num_candidates] = rough
            self._pairs[which, :num_candidates] = pairs
            return

        all_rough = torch.cat((self._rough[which], rough), dim=1)
        all_pairs = torch.cat((self._pairs[which], pairs), dim=1)
        best = all_rough.topk(self.count, dim=1, largest=False, sorted=False)
        self._rough[which] = best.values
        self._pairs[which] = all_pairs.gather(1, best.indices)

    def _compared(self, which: slice, places: Tensor, keys: TensorKeys) -> Tensor:
        """Exact scores and rows of the keys at `places` [q, c], `packed`."""
        rows = keys.rows[places]
        scores = self._scores(which, places, keys.vectors)
        hidden = self.queries.hidden(which, rows)
        if hidden is not None:
            scores = scores.masked_fill_(hidden, torch.inf)
        return packed(scores, rows)

    def _scores(self, which: slice, places: Tensor, vectors: Tensor) -> Tensor:
        """Scores [q, c] of pairs, like `pair_scores`: squared distances are computed from
        differences.

        Args:
            places: [q, c] places of keys in `vectors` [m, d].
        """
        out = torch.empty(places.shape, device=self.queries.device)
        queries = self.queries.vectors[which]

        # the keys of a tile of queries and places are copied, so their elements limit its size
        num_queries, num_places = places.shape
        dim = vectors.shape[1]
        max_columns = max(1, min(num_places, self.queries.numbers // dim))
        max_rows = max(1, self.queries.numbers // (max_columns * dim))

        for rows in slices(num_queries, max_rows):
            tile_queries = queries[rows, None]  # [rows, 1, d]
            for columns in slices(num_places, max_columns):
                keys = rows_at(vectors, places[rows, columns])  # [rows, columns, d]
                if self.queries.l2:
                    differences = tile_queries - keys
                    out[rows, columns] = differences.square_().sum(dim=2)
                else:
                    products = tile_queries * keys
                    out[rows, columns] = -products.sum(dim=2)
        return out


class SearcherOnDevice(Protocol):
    """Searcher whose keys are compared on a device other than the CPU.

    Attributes:
        rows: number of its keys.
        metric: `l2` or `ip`.
        device: name of the device.
        origin: [dim] float32, a point among the keys.
    """

    rows: int
    metric: str
    device: str
    origin: np.ndarray

    @property
    def memory(self) -> MemoryBudget:
        """Memory that a search on the device may take."""

    def comparisons(self, queries: TensorQueries, effort: int) -> Iterator[Comparison]:
        """Comparisons of queries with the keys that this effort reaches."""


def search_on_device(
    searcher: SearcherOnDevice,
    queries: np.ndarray,
    k: int,
    exclude: np.ndarray | None,
    effort: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k best keys of each query: scores float32 and rows int64 [n, k], best first; +inf
    and -1 where missing.

    Args:
        exclude: [n, 2] ranges of rows that each may not see, or None.
        effort: determines the keys that the searcher compares.
    """
    rows = searcher.rows
    numbers = searcher.memory.numbers

    def on_device(which: slice | np.ndarray) -> TensorQueries:
        return TensorQueries(
            queries[which],
            searcher.origin,
            searcher.metric,
            pick(exclude, which),
            searcher.device,
            numbers,
        )

    with AsyncResults(len(queries), k, rows, searcher.device) as results:
        spare = max(SPARE, slack(k))
        block = on_device(slice(None))
        search = TensorSearch(block, k, spare, rows)
        search.run(searcher.comparisons(block, effort), results.put)
        pending = np.flatnonzero(~search.complete.cpu().numpy())

        while len(pending):
            # a query's earlier result is replaced, so its copy must have ended
            results.wait()
            spare *= GROWTH
            step = max(1, numbers // min(rows + 1, k + spare))
            incomplete = []
            for which in np.split(pending, range(step, len(pending), step)):
                block = on_device(which)
                search = TensorSearch(block, k, spare, rows)
                put = partial(results.put, among=which)
                search.run(searcher.comparisons(block, effort), put)
                incomplete.append(which[~search.complete.cpu().numpy()])
            pending = np.concatenate(incomplete)
        results.wait()
    return results.scores, results.rows


def _with_last(items: Iterable[Comparison]) -> Iterator[tuple[Comparison, bool]]:
    """Items, each with a flag for the last one; an item is yielded once the next exists."""
    items = iter(items)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        yield item, following is None
        item = following


class KeysOnDevice:
    """The keys of a datastore on a device. The first shards stay there, as many as fit."""

    def __init__(self, keys: StoredKeys, device: str) -> None:
        self.keys = keys
        self.device = device
        self.budget = memory_budget(device)
        row_bytes = keys.dim * keys.dtype.itemsize + ROW_BYTES
        shard_bytes = keys.rows_per_shard * row_bytes
        self._num_resident = min(keys.shards, self.budget.resident // shard_bytes)
        self._resident: TensorKeys | None = None

    def __iter__(self) -> Iterator[TensorKeys]:
        """All keys, in blocks for one matrix product each."""
        if self._num_resident and self._resident is None:
            self._resident = self._copied(self._num_resident)

        max_rows = max(1, self.budget.piece // self.keys.dim)
        if self._resident is not None:
            yield from _cut(self._resident, max_rows)

        other_shards = range(self._num_resident, self.keys.shards)
        for first, block in self.keys.each(other_shards):
            rows = self._rows(first, len(block))
            keys = TensorKeys(rows, moved(block, self.device))
            yield from _cut(keys, max_rows)

    def _copied(self, shards: int) -> TensorKeys:
        """Copy the keys of the first shards to the device."""
        _, num_rows = self.keys.bounds(shards - 1)
        vectors = None
        for first, block in self.keys.each(range(shards)):
            part = moved(block, self.device)
            # filled part by part: joined at the end, they would be there twice
            if vectors is None:
                shape = (num_rows, self.keys.dim)
                vectors = torch.empty(shape, dtype=part.dtype, device=self.device)
            vectors[first : first + len(part)] = part
        assert vectors is not None
        return TensorKeys(self._rows(0, num_rows), vectors)

    def _rows(self, first: int, count: int) -> Tensor:
        return torch.arange(first, first + count, device=self.device)


def _cut(keys: TensorKeys, max_rows: int) -> Iterator[TensorKeys]:
    for part in slices(len(keys.rows), max_rows):
        yield keys.between(part.start, part.stop)


class WithAll:
    """Comparison of every query with every key: a `Comparison`."""

    def __init__(self, queries: TensorQueries, keys: TensorKeys, scores: int) -> None:
        self.keys = keys
        self.step = max(1, scores // len(keys.rows))
        self._queries = queries
        self._centred = keys.vectors.float() - queries.origin
        self.radius = self._centred.square().sum(dim=1).amax().sqrt()
        self._bias = queries.bias(self._centred)

    def nearest(self, which: slice, count: int) -> tuple[Tensor, Tensor]:
        factors = self._queries.factors[which]
        rough = torch.addmm(self._bias, factors, self._centred.T)  # [q, m]
        if self._queries.hides:
            hidden = self._queries.hidden(which, self.keys.rows)
            if hidden is not None:
                rough = rough.masked_fill_(hidden, torch.inf)
        return smallest(rough, count)
