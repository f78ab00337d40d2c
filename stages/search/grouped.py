"""IVF search of many queries, list by list: all queries that probe a list share one matrix product.

FAISS searches query by query and reads each list again for each of them; grouped, a list is read and
decoded once for a whole block of queries.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import faiss
import numpy as np

from stages.search.found import Found
from stages.search.keys import widened
from stages.search.lists import Lists, ListsInMemory
from stages.search.scan import KeyBlock, QueryBlock, extended_keys, smallest_of
from stages.search.scanning import ScanningSearcher
from stages.search.searcher import block_bytes
from stages.threads import Share, shared_out

if TYPE_CHECKING:
    from stages.search.tensor_lists import TensorLists

BOUND_KEYS = 4
"""Times k: as many keys, of the nearest lists, are ranked for a bound, beyond which no neighbour lies."""

MOST_PAIRS, PAIR_BYTES = 1 << 26, 8
"""Pairs of all queries that are held at a time: 0.5 GB, and no more than a block of a search takes."""

PIECE_BYTES = 8 << 20
"""Keys of a list, in float32, that a thread compares at a time; it holds them three times."""

HELD_BYTES = 128 << 20
"""Keys of lists in memory that are kept as they are compared, since each list is compared twice for a block."""

QUERIES = 256
"""Whose nearest lists a thread finds at a time."""


class DecodedLists:
    """The inverted lists of an IVF index, decoded one at a time.

    Attributes:
        sizes: [lists] keys in each.
        starts: [lists + 1] position of each list's first entry when all lists are laid end to end.
    """

    def __init__(self, ivf: Any, lists: Lists) -> None:
        self.ivf, self.lists, self.sizes = ivf, lists, lists.sizes
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def ids(self, number: int, part: range | None = None) -> np.ndarray:
        """Rows in a list, or in a part of it, rising since keys are added in order. The list is not empty."""
        return self.lists.ids(number, part)

    def keys(self, number: int, part: range | None = None) -> np.ndarray:
        """Keys of a list, or of a part of it, as the index knows them, [n, dim] float16 or float32."""
        codes = self.lists.codes(number, part)
        if isinstance(self.ivf, faiss.IndexIVFFlat):
            return codes.view(np.float32)
        quantizer: Any = self.ivf.pq if isinstance(self.ivf, faiss.IndexIVFPQ) else self.ivf.sq
        if getattr(quantizer, "qtype", None) == faiss.ScalarQuantizer.QT_fp16 and not self.ivf.by_residual:
            return codes.view(np.float16)
        decoded: np.ndarray = quantizer.decode(codes)
        return decoded + self.ivf.quantizer.reconstruct(number) if self.ivf.by_residual else decoded


def can_group(index: Any) -> bool:
    """Whether the lists of this index can be decoded here."""
    kinds = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
    if type(index) not in kinds:
        return False
    return type(faiss.downcast_InvertedLists(index.invlists)) is faiss.ArrayInvertedLists


class _TooMany(Exception):
    """More pairs lie within their bounds than can be held."""


class Visit(NamedTuple):
    """A list, and the pairs (query times probe plus place) that probe it, int64 [q]."""

    number: int
    pairs: np.ndarray


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
        self._held: dict[int, KeyBlock] = {}
        self._on_device: TensorLists | None = None
        self._room = HELD_BYTES if lists is None else 0

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
        bounds, found = self._bounds(queries, lists, k, share), Found(len(queries))
        most = min(MOST_PAIRS, block_bytes() // PAIR_BYTES)

        def scan(visit: Visit) -> None:
            for _, keys in self._pieces(visit.number):
                for pairs in queries.within(visit.pairs // probe, keys, bounds):
                    found.add(pairs)
                    if found.pairs > most and len(queries) > 1:
                        raise _TooMany

        try:
            share(scan, self._visits(lists))
        except _TooMany:
            return None
        return found

    def _nearest_lists(self, queries: np.ndarray, probe: int, share: Share) -> np.ndarray:
        """Numbers of the lists that each query probes, nearest first, int64 [n, probe].

        A graph before the lists may not lead to all of them: the last places then hold -1, unless all are asked for.
        """
        out = np.empty((len(queries), probe), np.int64)

        def find(part: slice) -> None:
            self._put_nearest_lists(queries[part], out[part])

        share(find, [slice(first, first + QUERIES) for first in range(0, len(queries), QUERIES)])
        return out

    def _put_nearest_lists(self, queries: np.ndarray, out: np.ndarray) -> None:
        out[:] = self.ivf.quantizer.search(queries, out.shape[1])[1]
        if out.shape[1] == self.ivf.nlist:
            _put_others(out)

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

    def _visits(self, nearest: np.ndarray) -> list[Visit]:
        """Every list with keys that some query probes; -1: none."""
        visited = np.where(nearest < 0, self.ivf.nlist, nearest).ravel()
        visited = visited.astype(np.uint16 if self.ivf.nlist < 1 << 16 else np.int32)
        order = np.argsort(visited, kind="stable")
        limits = np.searchsorted(visited, np.arange(self.ivf.nlist + 1), sorter=order)
        wanted = np.flatnonzero((np.diff(limits) > 0) & (self.lists.sizes > 0)).tolist()
        return [Visit(number, order[limits[number] : limits[number + 1]]) for number in wanted]

    def _pieces(self, number: int) -> Iterator[tuple[int, KeyBlock]]:
        """The keys of a list, some at a time if it is long, and the place of the first of them in it."""
        held = self._held.get(number)
        if held is not None:
            yield 0, held
            return
        parts = self._parts(number)
        for part in parts:
            vectors = np.ascontiguousarray(widened(self.lists.keys(number, part)))
            keys = KeyBlock(self.lists.ids(number, part), vectors, extended_keys(vectors, self.origin))
            if len(parts) == 1:
                self._hold(number, keys)
            yield part.start, keys

    def _hold(self, number: int, keys: KeyBlock) -> None:
        """Keep the keys of a list as they are compared, for those who come next, while there is room."""
        size = keys.vectors.nbytes + keys.extended.nbytes
        if size <= self._room:
            self._room -= size
            self._held[number] = keys

    def _parts(self, number: int) -> list[range]:
        size, step = int(self.lists.sizes[number]), max(1, PIECE_BYTES // (4 * self.dim))
        return [range(start, min(start + step, size)) for start in range(0, size, step)]

    def _bounds(self, queries: QueryBlock, nearest: np.ndarray, k: int, share: Share) -> np.ndarray:
        """Rough scores [n] beyond which none of the k best rows of a query lies.

        As many rows of its nearest lists are as near; of the lists those are looked at in which it may see some
        times k rows, and of each the best are held, so that a query takes no more than (BOUND_KEYS + 1) * depth scores.
        """
        depth = queries.depth(k)
        seen = self._rows_to_see(queries, nearest)
        looked_at = self._looked_at(queries, seen, k)
        most = int(looked_at.sum(axis=1).max(initial=1))
        looked_at &= seen > 0
        sizes = np.where(looked_at, np.minimum(seen, depth), 0)[:, :most].ravel()
        scores: list[list[np.ndarray]] = [[] for _ in range(len(queries))]
        radii = [np.float32(0)]

        def score(visit: Visit) -> None:
            owners, first = (visit.pairs // most).tolist(), 0
            for best in self._smallest(queries, visit.pairs // most, visit.number, depth, radii):
                part = slice(first, first + len(best))
                for owner, size, row in zip(owners[part], sizes[visit.pairs[part]].tolist(), best, strict=True):
                    scores[owner].append(row[:size])
                first = part.stop

        share(score, self._visits(np.where(looked_at, nearest, -1)[:, :most]))
        bounds = np.full(len(queries), np.inf, np.float32)

        def rank(number: int) -> None:
            own = np.concatenate([*scores[number], np.empty(0, np.float32)])
            if len(own) >= depth:
                own.partition(depth - 1)
                bounds[number] = own[depth - 1]

        share(rank, range(len(queries)))
        return queries.reach(bounds, max(radii))

    def _looked_at(self, queries: QueryBlock, seen: np.ndarray, k: int) -> np.ndarray:
        """Nearest lists of each query, bool [n, probe], that give a bound, by the rows that it sees of each."""
        looked_at: np.ndarray = np.cumsum(seen, axis=1) - seen < BOUND_KEYS * queries.depth(k)
        return looked_at

    def _smallest(
        self, queries: QueryBlock, which: np.ndarray, number: int, depth: int, radii: list[np.float32]
    ) -> Iterator[np.ndarray]:
        """The smallest rough scores of some queries in a list, as `QueryBlock.smallest` has them of keys in one piece.

        Args:
            radii: takes the radius of each piece.
        """
        best = np.empty((len(which), 0), np.float32)
        for _, keys in self._pieces(number):
            radii.append(keys.radius)
            found = queries.smallest(which, keys, depth)
            if len(keys.rows) == self.lists.sizes[number]:
                yield from found
                return
            best = smallest_of(np.concatenate([best, np.concatenate(list(found))], axis=1), depth, rising=queries.hides)
        yield best

    def _rows_to_see(self, queries: QueryBlock, nearest: np.ndarray) -> np.ndarray:
        """Rows [n, probe] that each query finds in its lists; short excluded ranges are not taken off."""
        seen = np.where(nearest < 0, 0, self.lists.sizes[nearest])
        if queries.hides and queries.exclude is not None:
            flat = seen.reshape(-1)
            for number, pairs in self._visits(nearest):
                hidden = np.searchsorted(self.lists.ids(number), queries.exclude[pairs // nearest.shape[1]])
                flat[pairs] -= (hidden[:, 1] - hidden[:, 0]).clip(0)
        return seen

    # On another device

    def nearest_on_device(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        from stages.search.tensor_lists import TensorLists
        from stages.search.tensors import TensorSearch

        block, probe = self.block(queries, exclude), min(self.ivf.nlist, self.probe * 4**effort)
        lists = np.empty((len(queries), probe), np.int64)
        self._put_nearest_lists(queries, lists)
        nearest = self._looked_at(block, self._rows_to_see(block, lists), k)
        found = TensorSearch(block, self.origin, k, self.device)
        if self._on_device is None:
            self._on_device = TensorLists(self.lists, self.device)
        self._on_device.scan(found, np.where(nearest, lists, -1), first=True)
        found.narrow()
        self._on_device.scan(found, np.where(nearest, -1, lists), first=False)
        return found.best()


def _put_others(lists: np.ndarray) -> None:
    """Put the lists that a row [lists] lacks in the place of its -1."""
    for number in np.flatnonzero((lists < 0).any(axis=1)):
        row = lists[number]
        row[row < 0] = np.setdiff1d(np.arange(len(row)), row)
