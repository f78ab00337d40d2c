"""IVF search of many queries, list by list: all queries that probe a list share one matrix product.

FAISS searches query by query and reads each list again for each of them; grouped, a list is read and
decoded once for a whole block of queries.
"""

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from stages.search.distances import pair_scores
from stages.search.ranking import sorted_places
from stages.search.scan import ScanningSearcher, candidates, extended_keys, extended_queries


class DecodedLists:
    """The inverted lists of an IVF index, decoded one at a time.

    Attributes:
        starts: [lists + 1] position of each list's first entry when all lists are laid end to end.
    """

    def __init__(self, ivf: Any) -> None:
        self.ivf = ivf
        self.lists = ivf.invlists
        self.sizes = [self.lists.list_size(number) for number in range(ivf.nlist)]
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def ids(self, number: int) -> np.ndarray:
        """Rows in a list, rising since keys are added in order; a view. The list is not empty."""
        return faiss.rev_swig_ptr(self.lists.get_ids(number), self.sizes[number])

    def keys(self, number: int) -> np.ndarray:
        """Keys of a list as the index knows them, [size, dim] float16 or float32. It is not empty."""
        size, width = self.sizes[number], self.ivf.code_size
        codes = faiss.rev_swig_ptr(self.lists.get_codes(number), size * width).reshape(size, width)
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


class GroupedSearcher(ScanningSearcher):
    """Searches an IVF index (flat, scalar- or product-quantised codes) list by list.

    A query that finds fewer than k allowed rows in its `probe` nearest lists is searched again in
    four times as many, up to all of them.
    """

    def __init__(self, ivf: Any, metric: str, probe: int, lossless: bool, device: str = "cpu") -> None:
        super().__init__(rows=ivf.ntotal, dim=ivf.d, metric=metric, lossless=lossless)
        self.ivf, self.probe, self.device = ivf, probe, device
        self.origin = ivf.quantizer.reconstruct_n(0, ivf.nlist).mean(axis=0)
        self.lists = DecodedLists(ivf)

    def reaches_all(self, effort: int) -> bool:
        return self.probe * 4**effort >= self.ivf.nlist

    def collect(
        self, queries: np.ndarray, size: int, masked: np.ndarray | None, effort: int
    ) -> tuple[np.ndarray, np.ndarray]:
        found = candidates(extended_queries(queries, self.origin, self.metric), size, self.device)
        for number, which in self._visits(queries, min(self.ivf.nlist, self.probe * 4**effort)):
            positions = np.arange(self.lists.starts[number], self.lists.starts[number + 1])
            hidden = None if masked is None else np.searchsorted(self.lists.ids(number), masked[which])
            keys = extended_keys(self.lists.keys(number), self.origin, self.metric)
            found.scan(which, keys, positions, hidden)
        return found.result()

    def _visits(self, queries: np.ndarray, probe: int) -> Iterator[tuple[int, np.ndarray]]:
        """(list, queries that probe it) for every list with keys that some query probes."""
        visited = self.ivf.quantizer.search(queries, probe)[1].ravel()
        nearest = visited.astype(np.uint16 if self.ivf.nlist < 1 << 16 else np.int32)
        order = np.argsort(nearest, kind="stable")
        limits = np.searchsorted(nearest, np.arange(self.ivf.nlist + 1), sorter=order)
        for number in np.flatnonzero(np.diff(limits)).tolist():
            if self.lists.sizes[number]:
                yield number, order[limits[number] : limits[number + 1]] // probe

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
