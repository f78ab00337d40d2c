"""The searcher that serves a file of FAISS best, or FAISS's own search."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.errors import ArtifactError, content_of
from stages.machine import PIECE, free_memory_bytes, return_large_blocks
from stages.numbers import size
from stages.reporting import Reporter
from stages.search.build import add_keys, trained_index
from stages.search.config import IndexConfig
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher, can_group
from stages.search.keys import StoredKeys
from stages.search.lists import Lists, ListsInMemory, filled, holds_whole_keys, lists_in_file
from stages.search.ranking import allowed_rows, best_first, score_to_distance, slack, without
from stages.search.searcher import Attempt, Searcher

REFINE_FACTOR = 8
"""Candidates a neighbour whose distances an index with refinement (`…,RFlat`) recomputes."""

SMALLEST_EF = 128
"""Least breadth of a search in an HNSW graph; twice the neighbours wanted, if that is more."""

WIDEST_FIRST = 1024
"""Excluded rows that the first attempt fetches on top; longer ranges are met by fetching more."""


class PlainSearcher(Searcher):
    """Any FAISS index, searched in batches.

    Excluded rows are fetched and dropped. A query that is left with fewer than k is searched again for
    four times as many rows, in four times as many lists, in the end everywhere.
    """

    def __init__(self, index: Any, metric: str, probe: int | None, lossless: bool) -> None:
        super().__init__(rows=index.ntotal, dim=index.d, metric=metric, lossless=lossless)
        self.index, self.probe = index, probe
        self.ivf: Any = faiss.try_extract_index_ivf(index)

    def attempt(self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int) -> Attempt:
        width = 0 if exclude is None else int((exclude[:, 1] - exclude[:, 0]).clip(0).max(initial=0))
        size = min(self.rows, (k + min(width, WIDEST_FIRST) + slack(k)) * 4**effort)
        exhausted = self._set_breadth(size, effort) and size == self.rows
        # the last attempt must end the search, so nothing may stay out of its sight
        with self._every_list_found() if exhausted else nullcontext():
            distances, ids = self._index(exhausted).search(queries, size)
        scores = score_to_distance(distances, self.metric)
        scores, ids = best_first(scores, without(ids, exclude), k)
        enough = np.minimum(k, allowed_rows(self.rows, len(ids), exclude))
        return Attempt(scores, ids, exhausted | ((ids >= 0).sum(1) >= enough))

    def _set_breadth(self, size: int, effort: int) -> bool:
        """How widely the next search looks; returns whether it looks everywhere."""
        space = faiss.ParameterSpace()
        if self.ivf is not None:
            probe = min(self.ivf.nlist, (self.probe or 1) * 4**effort)
            space.set_index_parameter(self.index, "nprobe", probe)
        if isinstance(self.index, faiss.IndexHNSW):
            self.index.hnsw.efSearch = max(SMALLEST_EF, 2 * size)
        if isinstance(self.index, faiss.IndexRefine):
            self.index.k_factor = min(REFINE_FACTOR, max(1, self.rows // size))
        return self.ivf is None or probe == self.ivf.nlist

    @contextmanager
    def _every_list_found(self) -> Iterator[None]:
        """Lists are found by comparing with all their centroids, not by a graph that may not lead to some."""
        graph = None if self.ivf is None else faiss.downcast_index(self.ivf.quantizer)
        if not isinstance(graph, faiss.IndexHNSW):
            yield
            return
        self.ivf.quantizer = graph.storage
        try:
            yield
        finally:
            self.ivf.quantizer = graph

    def _index(self, exhausted: bool) -> Any:
        """The index, or the keys behind a graph that may not lead to all of them."""
        if exhausted and isinstance(self.index, faiss.IndexHNSW):
            return self.index.storage
        return self.index


FLAT_ROWS_AT_A_TIME = 16384

MEMORY_SHARE = 0.5
"""Share of free memory that the index may take; the rest is for models, queries and results."""

LISTED = (b"IwFl", b"IwSq", b"IwPQ")
"""How the files begin of the kinds that are searched list by list."""

FEW_QUERIES = 20
"""From this many queries on FAISS compares with matrix products; its own threshold (128,000 / dim in
1.15) leaves mid-sized batches up to five times slower."""


def open_searcher(
    index: Path, settings: Mapping[str, Any], keys: tuple[int, int], device: str = "cpu", held: int | None = None
) -> Searcher:
    """Open a built index.

    Args:
        index: its `index.faiss`.
        keys: rows and width of the datastore that it was made of.
        settings: the resolved settings of the index artifact (its `config`): `metric` and `probe`.
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
        held: how many of the rows it holds; None: all.
    Raises: ArtifactError if the file is no index that FAISS can read.
    """
    lists = lists_in_file(index) if stays_on_disk(index) else None
    # lists are read again and again: what malloc keeps of them would not be given back
    if lists is not None:
        return_large_blocks(PIECE)
    found = read_index(index) if lists is None else lists.index()
    with content_of(index):
        _require_sound(found, keys, settings["metric"], lists, keys[0] if held is None else held)
    return searcher_of(found, settings["metric"], settings["probe"], _resolved(device), lists)


def build_searcher(settings: IndexConfig, keys: StoredKeys, device: str = "cpu") -> Searcher:
    """Search keys in memory by an index that is built now; settings resolved."""
    index = trained_index(settings, keys)
    add_keys(index, keys)
    probe = settings.probe if isinstance(settings.probe, int) else None
    return searcher_of(index, settings.metric, probe, _resolved(device))


def stays_on_disk(index: Path) -> bool:
    """Whether lists of an index are read when they are searched, again and again, instead of held: if they are large.

    What is found is the same. Other kinds are read whole in any case.
    """
    free = free_memory_bytes()
    if free is None or index.stat().st_size <= MEMORY_SHARE * free:
        return False
    with index.open("rb") as file:
        return file.read(4) in LISTED


def tell_of_large(index: Path, reporter: Reporter) -> None:
    """Say so where lists stay on the disk."""
    if stays_on_disk(index):
        reporter.info(
            f"the index takes {size(index.stat().st_size)}, more than half of what memory is free: its lists are read "
            "from the disk, for many queries at once"
        )


def _require_sound(index: Any, keys: tuple[int, int], metric: str, lists: Lists | None, held: int) -> None:
    """Raises: ValueError for an index of other keys, or one that names rows that there are not: FAISS reads them."""
    rows, dim = keys
    if (index.ntotal, index.d) != (held, dim):
        raise ValueError(f"an index of {index.ntotal} keys of width {index.d}, not {held} of width {dim}")
    if index.metric_type != (faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT):
        raise ValueError(f"an index of another metric than {metric}")
    ivf: Any = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        lists = lists or ListsInMemory(ivf)
        _require_rows(map(lists.ids, filled(lists)), rows, lowest=0)
    graph = getattr(faiss.downcast_index(index), "hnsw", None)
    if graph is not None:
        _require_rows([faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())], rows, lowest=-1)
        _require_rows([np.array([graph.entry_point])], rows, lowest=0)


def _require_rows(parts: Iterable[np.ndarray], rows: int, lowest: int) -> None:
    for part in parts:
        if len(part) and (part.min() < lowest or part.max() >= rows):
            raise ValueError(f"it names rows {part.min()} to {part.max()} of {rows}")


def read_index(path: Path) -> Any:
    """An index without the tables that FAISS's own search of codes makes: lists x codes, often larger than the index.

    Raises: ArtifactError if the file is no index that this FAISS can read.
    """
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
    except RuntimeError as error:
        raise ArtifactError(
            f"{path} is no index that FAISS {faiss.__version__} can read; build it again: memlm build-index."
        ) from error


def searcher_of(
    index: Any, metric: str, probe: int | None, device: str = "cpu", lists: Lists | None = None
) -> Searcher:
    """The searcher for an index in memory; `probe` lists are read a query where it has lists.

    `lists` are those of an index whose own are empty, since they are not in memory.
    On `cuda` the products of exact and grouped search are computed there; other kinds stay on the CPU.
    """
    # a global of FAISS: set where every search begins, whoever changed it
    faiss.cvar.distance_compute_blas_threshold = FEW_QUERIES
    if type(index) is faiss.IndexFlat or isinstance(index, faiss.IndexFlatL2 | faiss.IndexFlatIP):
        keys = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        return ExactSearcher(_KeysOfFlat(index, keys.reshape(-1, index.d)), metric, device)
    if can_group(index):
        return GroupedSearcher(index, metric, probe or 1, holds_whole_keys(index), device, lists)
    _make_tables(index)
    return PlainSearcher(index, metric, probe, isinstance(index, faiss.IndexHNSWFlat))


def _resolved(device: str) -> str:
    """`auto`: a GPU if there is one."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _make_tables(index: Any) -> None:
    """Build the tables that FAISS needs to search codes at full speed."""
    ivf = faiss.try_extract_index_ivf(index)
    codes: Any = None if ivf is None else faiss.downcast_index(ivf)
    if hasattr(codes, "precompute_table"):
        codes.precompute_table()


class _KeysOfFlat(StoredKeys):
    """Keys inside a flat index, which must live as long as they are read."""

    def __init__(self, index: Any, keys: np.ndarray) -> None:
        super().__init__(keys, FLAT_ROWS_AT_A_TIME)
        self.index = index


def searching_gpus() -> int:
    """GPUs that FAISS sees; its build for the CPU sees none."""
    return int(getattr(faiss, "get_num_gpus", int)())
