"""Opening FAISS indexes: the fastest searcher here for an index, or FAISS's own search."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.errors import ArtifactError, content_of
from stages.machine import free_memory_bytes
from stages.numbers import size
from stages.reporting import Reporter
from stages.search.build import add_keys, trained_index
from stages.search.config import IndexConfig
from stages.search.exact import ExactSearcher
from stages.search.factory import METRICS
from stages.search.grouped import Engine, GroupedSearcher
from stages.search.keys import StoredKeys
from stages.search.lists import KINDS_OF_KEYS, InvertedLists, holds_whole_keys
from stages.search.ranking import allowed_rows, best_first, score_to_distance, slack, without
from stages.search.scan import widest
from stages.search.searcher import Attempt, Searcher

REFINE_FACTOR = 8
"""Candidates for each neighbour whose distances an index with refinement (`…,RFlat`) recomputes."""

SMALLEST_EF = 128
"""Least `efSearch` in an HNSW graph; twice the number of wanted neighbours, if that is more."""

WIDEST_FIRST = 1024
"""Most excluded rows that the first attempt allows for; longer ranges need further attempts."""


class PlainSearcher(Searcher):
    """Any FAISS index, searched in batches.

    Excluded rows are fetched and dropped. If a query is left with fewer than k rows, it is searched
    again.
    Each search fetches four times the rows from four times the lists, up to all of them.
    """

    def __init__(self, index: Any, metric: str, probe: int | None, lossless: bool) -> None:
        super().__init__(rows=index.ntotal, dim=index.d, metric=metric, lossless=lossless)
        self.index = index
        self.probe = probe
        self.ivf: Any = faiss.try_extract_index_ivf(index)

    def attempt(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None, effort: int
    ) -> Attempt:
        # FAISS fetches excluded rows too, so as many more are asked for
        num_excluded = min(widest(exclude), WIDEST_FIRST)
        num_candidates = k + num_excluded + slack(k)
        size = min(self.rows, num_candidates * 4**effort)
        visits_all_lists = self._set_breadth(size, effort)
        is_exhaustive = visits_all_lists and size == self.rows

        index = self.index
        # a graph may not reach all of its keys
        if is_exhaustive and isinstance(index, faiss.IndexHNSW):
            index = index.storage
        # the last attempt must end the search, so it must reach every row
        with self._every_list_found() if is_exhaustive else nullcontext():
            distances, ids = index.search(queries, size)

        scores = score_to_distance(distances, self.metric)
        allowed = without(ids, exclude)
        best_scores, best_ids = best_first(scores, allowed, k)

        num_wanted = np.minimum(k, allowed_rows(self.rows, len(queries), exclude))
        num_neighbors = (best_ids >= 0).sum(axis=1)
        is_complete = is_exhaustive | (num_neighbors >= num_wanted)
        return Attempt(best_scores, best_ids, is_complete)

    def _set_breadth(self, size: int, effort: int) -> bool:
        """Set the lists and links that the next search visits; returns whether it visits all lists."""
        if isinstance(self.index, faiss.IndexHNSW):
            self.index.hnsw.efSearch = max(SMALLEST_EF, 2 * size)
        if isinstance(self.index, faiss.IndexRefine):
            # no more candidates than there are rows
            max_factor = max(1, self.rows // size)
            self.index.k_factor = min(REFINE_FACTOR, max_factor)
        if self.ivf is None:
            return True

        num_lists = self.ivf.nlist
        probe = min(num_lists, (self.probe or 1) * 4**effort)
        faiss.ParameterSpace().set_index_parameter(self.index, "nprobe", probe)
        return bool(probe == num_lists)

    @contextmanager
    def _every_list_found(self) -> Iterator[None]:
        """Compare queries with all centroids in this context; a graph over them may not reach some
        lists.
        """
        graph = None if self.ivf is None else faiss.downcast_index(self.ivf.quantizer)
        if not isinstance(graph, faiss.IndexHNSW):
            yield
            return
        self.ivf.quantizer = graph.storage
        try:
            yield
        finally:
            self.ivf.quantizer = graph


FLAT_ROWS_AT_A_TIME = 16384

MEMORY_SHARE = 0.5
"""Share of free memory that the index may take; the rest is for models, queries and results."""

LISTED = (b"IwFl", b"IwSq", b"IwPQ")
"""First bytes of files whose kinds of index are searched list by list."""

FEW_QUERIES = 20
"""Fewest queries that FAISS compares with matrix products. Its own threshold (128,000 / dim in
1.15)
makes mid-sized batches up to five times slower."""


def open_searcher(
    index: Path,
    settings: Mapping[str, Any],
    keys: tuple[int, int],
    device: str = "cpu",
    num_rows: int | None = None,
) -> Searcher:
    """Open a built index.

    Args:
        index: path of `index.faiss`.
        keys: rows and width of the datastore that it was built from.
        settings: the resolved settings of the index artifact (its `config`): `metric` and `probe`.
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
        num_rows: number of rows that it holds; None: all.
    Raises: ArtifactError if FAISS cannot read the file, or the index is not valid for these keys.
    """
    faiss_index = read_index(index, mapped=stays_on_disk(index))
    with content_of(index):
        _require_sound(
            faiss_index, keys, settings["metric"], keys[0] if num_rows is None else num_rows
        )
    return searcher_of(faiss_index, settings["metric"], settings["probe"], _resolved(device))


def build_searcher(settings: IndexConfig, keys: StoredKeys, device: str = "cpu") -> Searcher:
    """Build an index of keys in memory, and open it; settings must be resolved."""
    index = trained_index(settings, keys)
    add_keys(index, keys)
    probe = settings.probe if isinstance(settings.probe, int) else None
    return searcher_of(index, settings.metric, probe, _resolved(device))


def stays_on_disk(index: Path) -> bool:
    """Whether an index is so large that every search reads its lists from disk.

    The results are the same. Kinds without lists are always read completely.
    """
    free = free_memory_bytes()
    if free is None or index.stat().st_size <= MEMORY_SHARE * free:
        return False
    with index.open("rb") as file:
        return file.read(4) in LISTED


def tell_of_large(index: Path, reporter: Reporter) -> None:
    """Report that lists stay on the disk, if they do."""
    if stays_on_disk(index):
        reporter.info(
            f"the index takes {size(index.stat().st_size)}, more than half of what memory is free: its lists are read "
            "from the disk, for many queries at once"
        )


def _require_sound(index: Any, keys: tuple[int, int], metric: str, num_rows: int) -> None:
    """Check what FAISS would not.

    Raises: ValueError for an index of other keys, or with row numbers out of range.
    """
    rows, dim = keys
    if (index.ntotal, index.d) != (num_rows, dim):
        raise ValueError(
            f"an index of {index.ntotal} keys of width {index.d}, not {num_rows} of width {dim}"
        )
    if index.metric_type != METRICS[metric]:
        raise ValueError(f"an index of another metric than {metric}")

    ivf: Any = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        lists = InvertedLists(ivf)
        ids_by_list = map(lists.ids, lists.filled)
        _require_rows(ids_by_list, rows, lowest=0)

    graph = getattr(faiss.downcast_index(index), "hnsw", None)
    if graph is not None:
        links = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
        _require_rows([links], rows, lowest=-1)  # -1: no link
        _require_rows([np.array([graph.entry_point])], rows, lowest=0)


def _require_rows(parts: Iterable[np.ndarray], rows: int, lowest: int) -> None:
    for part in parts:
        if len(part) and (part.min() < lowest or part.max() >= rows):
            raise ValueError(f"it names rows {part.min()} to {part.max()} of {rows}")


def read_index(path: Path, mapped: bool = False) -> Any:
    """Read an index without FAISS's precomputed tables (lists x codes), which are often larger than
    the index.

    Args:
        mapped: whether lists stay on the disk, and are mapped into memory.
    Raises: ArtifactError if this FAISS cannot read the file.
    """
    flags = faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    if mapped:
        flags |= faiss.IO_FLAG_MMAP
    try:
        return faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise ArtifactError(
            f"{path} is no index that FAISS {faiss.__version__} can read; build it again: memlm build-index."
        ) from error


def searcher_of(
    index: Any,
    metric: str,
    probe: int | None,
    device: str = "cpu",
    engine: Engine = "auto",
) -> Searcher:
    """The searcher for an opened index; if it has lists, a query reads `probe` of them.

    On `cuda` the products of exact and grouped search are computed on the GPU; other kinds stay on
    the CPU.
    """
    # a global of FAISS that others may have changed, so it is set for every searcher
    faiss.cvar.distance_compute_blas_threshold = FEW_QUERIES

    is_flat = isinstance(index, faiss.IndexFlatL2 | faiss.IndexFlatIP)
    # not `isinstance`: kinds derived from IndexFlat have other metrics
    if is_flat or type(index) is faiss.IndexFlat:
        numbers = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        keys = _KeysOfFlat(index, numbers.reshape(-1, index.d))
        return ExactSearcher(keys, metric, device)

    if type(index) in KINDS_OF_KEYS:
        return GroupedSearcher(index, metric, probe or 1, holds_whole_keys(index), device, engine)

    ivf = faiss.try_extract_index_ivf(index)
    codes: Any = None if ivf is None else faiss.downcast_index(ivf)
    if hasattr(codes, "precompute_table"):
        codes.precompute_table()  # FAISS needs it to search codes at full speed
    is_lossless = isinstance(index, faiss.IndexHNSWFlat)
    return PlainSearcher(index, metric, probe, is_lossless)


def _resolved(device: str) -> str:
    """The device's name, with `auto` replaced: `cuda` if there is a GPU, else `cpu`."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class _KeysOfFlat(StoredKeys):
    """Keys inside a flat index; the reference keeps the index alive while they are read."""

    def __init__(self, index: Any, keys: np.ndarray) -> None:
        super().__init__(keys, FLAT_ROWS_AT_A_TIME)
        self.index = index


def searching_gpus() -> int:
    """Number of GPUs that FAISS sees; its CPU build sees none."""
    return int(getattr(faiss, "get_num_gpus", int)())
