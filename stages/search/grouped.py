"""IVF search of many queries, list by list: all queries that probe a list share one matrix product.

FAISS searches query by query and reads each list again for each of them; grouped, a list is read and
decoded once for a whole block of queries.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import faiss
import numpy as np

from stages.search.blocks import ListBlocks
from stages.search.bounds import ScoreTable
from stages.search.decoded import DecodedLists
from stages.search.distances import pair_scores
from stages.search.found import Found
from stages.search.lists import Lists, ListsInMemory
from stages.search.ranking import sorted_places
from stages.search.scan import KeyBlock, QueryBlock, Room, smallest_of
from stages.search.scanning import ScanningSearcher
from stages.search.searcher import block_bytes
from stages.threads import Share, in_turn, shared_out

BOUND_KEYS = 4
"""Times k: as many keys, of the nearest lists, are ranked for a bound, beyond which no neighbour lies."""

MOST_PAIRS, PAIR_BYTES = 1 << 26, 8
"""Pairs of all queries that are held at a time: 0.5 GB, and no more than a block of a search takes."""

HELD_BYTES = 128 << 20
"""Keys of lists in memory that are kept as they are compared, since each list is compared twice for a block."""

QUERIES, VISITING_QUERIES = 256, 4096
"""Whose nearest lists a thread finds at a time, and whose it sorts by list."""

GROUP_SCORES, GROUP_KEYS, GROUPS = 1 << 22, 4096, 8
"""Scores that a thread computes before it takes other lists, keys of these lists, and for how many times each thread
they suffice at least: few calls of NumPy, but all threads busy to the end."""

KEY_SCORES = 16
"""Scores that take as long as to decode a key."""


def can_group(index: Any) -> bool:
    """Whether the lists of this index can be decoded here."""
    kinds = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
    if type(index) not in kinds:
        return False
    return type(faiss.downcast_InvertedLists(index.invlists)) is faiss.ArrayInvertedLists


class _TooMany(Exception):
    """More pairs lie within their bounds than can be held."""


class Visit(NamedTuple):
    """A list, how many pairs (query times probe plus place) probe it, and these, some at a time."""

    number: int
    count: int
    some: list[np.ndarray]

    @property
    def pairs(self) -> np.ndarray:
        """All of them, int64 [count]."""
        return self.some[0] if len(self.some) == 1 else np.concatenate(self.some)


class GroupedSearcher(ScanningSearcher):
    """Searches an IVF index (flat, scalar- or product-quantised codes) list by list.

    A query that finds fewer than k allowed rows in its `probe` nearest lists is searched again in
    four times as many, up to all of them.

    Args:
        lists: those of the index; None: in memory, with it.
    """

    def __init__(
        self, ivf: Any, metric: str, probe: int, lossless: bool, device: str = "cpu", lists: Lists | None = None
    ) -> None:
        super().__init__(rows=ivf.ntotal, dim=ivf.d, metric=metric, lossless=lossless)
        self.ivf, self.probe, self.device = ivf, probe, device
        self.origin = ivf.quantizer.reconstruct_n(0, ivf.nlist).mean(axis=0)
        self.lists = DecodedLists(ivf, lists or ListsInMemory(ivf))
        self.blocks = ListBlocks(self.lists, self.origin, HELD_BYTES if lists is None else 0)

    def reaches_all(self, effort: int) -> bool:
        return self.probe * 4**effort >= self.ivf.nlist

    def nearest(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int, share: Share
    ) -> tuple[np.ndarray, np.ndarray]:
        found = self._find(self.block(queries, exclude), k, effort, share)
        if found is not None:
            return found.best(k, share)
        middle = len(queries) // 2  # among a great many equal keys: fewer queries at a time
        halves = [
            self.nearest(queries[part], k, None if exclude is None else exclude[part], effort, share)
            for part in (slice(None, middle), slice(middle, None))
        ]
        scores, rows = (np.concatenate(both) for both in zip(*halves, strict=True))
        return scores, rows

    def _find(self, queries: QueryBlock, k: int, effort: int, share: Share) -> Found | None:
        """Pairs among which the k best of each query are; None if they are too many to be held."""
        probe = min(self.ivf.nlist, self.probe * 4**effort)
        lists = self._nearest_lists(queries.vectors, probe, share)
        bounds, room = self._bounds(queries, lists, k, share), Room()
        cells, columns = self._cells(lists)
        found, most = Found(len(queries), columns), min(MOST_PAIRS, block_bytes() // PAIR_BYTES)

        def scan(group: list[Visit]) -> None:
            pairs = [visit.pairs for visit in group]
            taken, which = np.concatenate(pairs), [some // probe for some in pairs]
            if cells is not None:
                taken = cells[taken]
            for part, (keys, places) in enumerate(self._blocks(group, room)):
                first = 0
                for some in queries.within(zip(which, places, strict=True), keys, bounds, room):
                    stop = first + len(some.counts)
                    found.add(taken[first:stop] + part, some.counts, some.packed)
                    first = stop
                    if found.pairs > most and len(queries) > 1:
                        raise _TooMany

        try:
            share(scan, self._groups(self._visits(lists, share), share))
        except _TooMany:
            return None
        return found

    def _cells(self, nearest: np.ndarray) -> tuple[np.ndarray | None, int]:
        """Where `Found` puts what the first part of each list brings, of so many cells of a query.

        None: into the cell of the pair's own number, as where no list is long.
        """
        if self.blocks.parts.max(initial=1) == 1:
            return None, nearest.shape[1]
        parts = self.blocks.parts[nearest]
        ends = np.cumsum(parts, axis=1)
        columns = int(ends[:, -1].max(initial=1))
        return (ends - parts + np.arange(0, len(ends) * columns, columns)[:, None]).ravel(), columns

    def _blocks(self, group: list[Visit], room: Room) -> Iterator[tuple[KeyBlock, list[slice]]]:
        """The keys of lists that are visited together, and which are those of each; a long list alone, in parts."""
        numbers = [visit.number for visit in group]
        if self.blocks.parts[numbers[0]] == 1:
            yield self.blocks.together(numbers, room)
            return
        for keys in self.blocks.in_parts(numbers[0], room):
            yield keys, [slice(0, len(keys.rows))]

    def _groups(self, visits: list[Visit], share: Share) -> list[list[Visit]]:
        """Visits whose lists a thread compares together: all kept or none, a long one alone."""
        sizes, is_long = self.lists.sizes.tolist(), (self.blocks.parts > 1).tolist()
        scores = [sizes[visit.number] * (visit.count + KEY_SCORES) for visit in visits]
        most = min(GROUP_SCORES, sum(scores) // (GROUPS * share.threads))
        groups, taken, keys, kind = list[list[Visit]](), 0, 0, None
        for visit, own in zip(visits, scores, strict=True):
            size, own_kind = sizes[visit.number], visit.number < self.blocks.kept
            if taken + own > most or keys + size > GROUP_KEYS or own_kind != kind or is_long[visit.number]:
                groups.append([])
                taken, keys = 0, 0
            groups[-1].append(visit)
            taken, keys, kind = taken + own, keys + size, None if is_long[visit.number] else own_kind
        return groups

    def _nearest_lists(self, queries: np.ndarray, probe: int, share: Share) -> np.ndarray:
        """Numbers of the lists that each query probes, nearest first, int64 [n, probe].

        A graph before the lists may not lead to all of them: the last places then hold -1, unless all are asked for.
        """
        out = np.empty((len(queries), probe), np.int64)

        def find(part: slice) -> None:
            out[part] = self.ivf.quantizer.search(queries[part], probe)[1]
            if probe == self.ivf.nlist:
                _put_others(out[part])

        share(find, [slice(first, first + QUERIES) for first in range(0, len(queries), QUERIES)])
        return out

    def list_ranks(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """How many lists must be read before the one with a row, int64 [n, m]; `probe` for later ones, and for -1.

        Args:
            queries: [n, dim].
            rows: [n, m].
        """
        list_of = np.full(self.rows + 1, self.ivf.nlist)
        for number in np.flatnonzero(self.lists.sizes).tolist():
            list_of[self.lists.ids(number)] = number
        with shared_out() as share:
            nearest = self._nearest_lists(queries, self.probe, share)
        ranks = np.empty(rows.shape, np.int64)
        for own, lists, out in zip(list_of[rows], nearest, ranks, strict=True):
            of_list = np.full(self.ivf.nlist + 1, self.probe)
            of_list[lists[lists >= 0]] = np.flatnonzero(lists >= 0)
            out[:] = of_list[own]
        return ranks

    def _visits(self, nearest: np.ndarray, share: Share = in_turn) -> list[Visit]:
        """Every list with keys that some query probes; -1: none."""
        step, lists = VISITING_QUERIES, self.ivf.nlist
        orders = [np.empty(0, np.int64)] * -(-len(nearest) // step)
        limits = np.empty((len(orders), lists + 1), np.int64)

        def sort(part: int) -> None:
            own = nearest[part * step : (part + 1) * step]
            visited = np.where(own < 0, lists, own).ravel().astype(np.uint16 if lists < 1 << 16 else np.int32)
            order = np.argsort(visited, kind="stable")
            limits[part] = np.searchsorted(visited, np.arange(lists + 1), sorter=order)
            orders[part] = order + part * step * nearest.shape[1]

        share(sort, range(len(orders)))
        counts = np.diff(limits, axis=1)
        totals = np.where(self.lists.sizes > 0, counts.sum(axis=0), 0)
        some = counts > 0
        limits_of = limits.tolist()
        return [
            Visit(
                number,
                int(totals[number]),
                [
                    orders[part][limits_of[part][number] : limits_of[part][number + 1]]
                    for part in np.flatnonzero(some[:, number]).tolist()
                ],
            )
            for number in np.flatnonzero(totals).tolist()
        ]

    def _bounds(self, queries: QueryBlock, nearest: np.ndarray, k: int, share: Share) -> np.ndarray:
        """Rough scores [n] beyond which none of the k best rows of a query lies.

        As many rows of its nearest lists are as near; of the lists those are looked at in which it may see some
        times k rows, and of each the best are held, so that a query takes no more than (BOUND_KEYS + 1) * depth scores.
        """
        depth, room, radii = queries.depth(k), Room(), [np.float32(0)]
        sizes = self._scores_to_rank(queries, nearest, k, share)
        most = sizes.shape[1]
        table = ScoreTable(sizes, depth)

        def score(group: list[Visit]) -> None:
            pairs = [visit.pairs for visit in group]
            for some, scores in self._smallest(queries, group, [own // most for own in pairs], depth, radii, room):
                table.put(np.concatenate(pairs)[some], scores)

        share(score, self._groups(self._visits(np.where(sizes > 0, nearest[:, :most], -1), share), share))
        return queries.reach(table.ranked(share), max(radii))

    def _scores_to_rank(self, queries: QueryBlock, nearest: np.ndarray, k: int, share: Share) -> np.ndarray:
        """Scores [n, m] that each of the m nearest lists gives of each query, as `_bounds` ranks them."""
        seen = self._rows_to_see(queries, nearest, share)

        def choose(part: slice) -> None:
            own = seen[part]
            own[~self._looked_at(queries, own, k)] = 0
            np.minimum(own, queries.depth(k), out=own)

        share(choose, _slices(len(seen)))
        some = np.flatnonzero(seen.any(axis=0))
        return seen[:, : some[-1] + 1 if len(some) else 1]

    def _looked_at(self, queries: QueryBlock, seen: np.ndarray, k: int) -> np.ndarray:
        """Nearest lists of each query, bool [n, probe], that give a bound, by the rows that it sees of each."""
        looked_at: np.ndarray = np.cumsum(seen, axis=1) - seen < BOUND_KEYS * queries.depth(k)
        return looked_at

    def _smallest(
        self,
        queries: QueryBlock,
        group: list[Visit],
        which: list[np.ndarray],
        depth: int,
        radii: list[np.float32],
        room: Room,
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """The smallest rough scores of queries in the lists that they visit, as `QueryBlock.smallest` has them.

        Args:
            which: queries of each visit; what is given is of a slice of all of them, end to end.
            radii: takes the radius of each block of keys.
        """
        best = np.empty((len(which[0]), 0), np.float32)
        for keys, places in self._blocks(group, room):
            radii.append(max(keys.part(place).radius for place in places))
            found = queries.smallest(zip(which, places, strict=True), keys, depth, room)
            if len(group) > 1 or len(keys.rows) == self.lists.sizes[group[0].number]:
                yield from found
                return
            own = np.concatenate([scores.copy() for _, scores in found])
            best = smallest_of(np.concatenate([best, own], axis=1), depth, rising=queries.hides)
        yield slice(None), best

    def _rows_to_see(self, queries: QueryBlock, nearest: np.ndarray, share: Share = in_turn) -> np.ndarray:
        """Rows [n, probe] that each query finds in its lists; short excluded ranges are not taken off."""
        seen, exclude = np.empty(nearest.shape, np.int64), queries.exclude

        def count(part: slice) -> None:
            seen[part] = np.where(nearest[part] < 0, 0, self.lists.sizes[nearest[part]])

        def take_off(visit: Visit) -> None:
            hidden = np.searchsorted(self.lists.ids(visit.number), exclude[visit.pairs // nearest.shape[1]])
            seen.reshape(-1)[visit.pairs] -= (hidden[:, 1] - hidden[:, 0]).clip(0)

        share(count, _slices(len(nearest)))
        if queries.hides and exclude is not None:
            share(take_off, self._visits(nearest, share))
        return seen

    # On another device

    def collect(self, queries: QueryBlock, size: int, effort: int) -> tuple[np.ndarray, np.ndarray, np.float32]:
        from stages.search.tensors import TensorCandidates

        found, radius = TensorCandidates(queries.extended, size, self.device), np.float32(0)
        probe = min(self.ivf.nlist, self.probe * 4**effort)
        for visit in self._visits(self._nearest_lists(queries.vectors, probe, in_turn)):
            which, first = visit.pairs // probe, int(self.lists.starts[visit.number])
            for keys, _ in self._blocks([visit], Room()):
                positions = first + np.arange(len(keys.rows))
                first += len(keys.rows)
                hidden = None if queries.exclude is None else np.searchsorted(keys.rows, queries.exclude[which])
                found.scan(which, keys.extended, positions, hidden)
                radius = max(radius, keys.radius)
        return *found.result(), radius

    def settle(self, queries: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions, places = sorted_places(names.ravel())
        scores = np.full(positions.shape, np.inf, np.float32)
        ids = np.full(positions.shape, -1, np.int64)
        limits = np.searchsorted(positions, self.lists.starts)
        for number in np.flatnonzero(np.diff(limits)).tolist():
            part = slice(limits[number], limits[number + 1])
            pairs, offsets = places[part], positions[part] - self.lists.starts[number]
            owners, keys = pairs // names.shape[1], self.lists.keys(number)
            scores[pairs] = pair_scores(queries, owners, keys, offsets, self.metric)
            ids[pairs] = self.lists.ids(number)[offsets]
        return scores.reshape(names.shape), ids.reshape(names.shape)


def _slices(queries: int) -> list[slice]:
    return [slice(first, first + VISITING_QUERIES) for first in range(0, queries, VISITING_QUERIES)]


def _put_others(lists: np.ndarray) -> None:
    """Put the lists that a row [lists] lacks in the place of its -1."""
    for number in np.flatnonzero((lists < 0).any(axis=1)):
        row = lists[number]
        row[row < 0] = np.setdiff1d(np.arange(len(row)), row)
