"""From a file of FAISS to the searcher that serves it best."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.errors import ArtifactError, content_of
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher, can_group
from stages.search.keys import StoredKeys
from stages.search.plain import PlainSearcher
from stages.search.searcher import Searcher

FLAT_ROWS_AT_A_TIME = 16384

FEW_QUERIES = 20
"""From this many queries on FAISS compares with matrix products; its own threshold (128,000 / dim in
1.15) leaves mid-sized batches up to five times slower."""


def open_searcher(index: Path, settings: Mapping[str, Any], keys: tuple[int, int], device: str = "cpu") -> Searcher:
    """Open a built index.

    Args:
        index: its `index.faiss`.
        keys: rows and width of the datastore that it was made of.
        settings: the resolved settings of the index artifact (its `config`): `metric` and `probe`.
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
    Raises: ArtifactError if the file is no index that FAISS can read.
    """
    found = read_index(index)
    with content_of(index):
        _require_sound(found, keys, settings["metric"])
    return searcher_of(found, settings["metric"], settings["probe"], _resolved(device))


def _require_sound(index: Any, keys: tuple[int, int], metric: str) -> None:
    """Raises: ValueError for an index of other keys, or one that names rows that there are not: FAISS reads them."""
    rows, dim = keys
    if (index.ntotal, index.d) != (rows, dim):
        raise ValueError(f"an index of {index.ntotal} keys of width {index.d}, not {rows} of width {dim}")
    if index.metric_type != (faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT):
        raise ValueError(f"an index of another metric than {metric}")
    ivf: Any = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        _require_rows(_listed_rows(ivf.invlists), rows, lowest=0)
    graph = getattr(faiss.downcast_index(index), "hnsw", None)
    if graph is not None:
        _require_rows([faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())], rows, lowest=-1)
        _require_rows([np.array([graph.entry_point])], rows, lowest=0)


def _listed_rows(lists: Any) -> Iterator[np.ndarray]:
    for number in range(lists.nlist):
        size = lists.list_size(number)
        if size:
            yield faiss.rev_swig_ptr(lists.get_ids(number), size)


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


def searcher_of(index: Any, metric: str, probe: int | None, device: str = "cpu") -> Searcher:
    """The searcher for an index in memory; `probe` lists are read a query where it has lists.

    On `cuda` the products of exact and grouped search are computed there; other kinds stay on the CPU.
    """
    faiss.cvar.distance_compute_blas_threshold = FEW_QUERIES
    if type(index) is faiss.IndexFlat or isinstance(index, faiss.IndexFlatL2 | faiss.IndexFlatIP):
        keys = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        return ExactSearcher(_KeysOfFlat(index, keys.reshape(-1, index.d)), metric, device)
    if can_group(index):
        return GroupedSearcher(index, metric, probe or 1, _whole_keys(index), device)
    _make_tables(index)
    return PlainSearcher(index, metric, probe, isinstance(index, faiss.IndexHNSWFlat))


def _resolved(device: str) -> str:
    """`auto`: a GPU if there is one."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _make_tables(index: Any) -> None:
    """What FAISS needs to search codes at its full speed."""
    ivf = faiss.try_extract_index_ivf(index)
    codes: Any = None if ivf is None else faiss.downcast_index(ivf)
    if hasattr(codes, "precompute_table"):
        codes.precompute_table()


class _KeysOfFlat(StoredKeys):
    """Keys inside a flat index, which must live as long as they are read."""

    def __init__(self, index: Any, keys: np.ndarray) -> None:
        super().__init__(keys, FLAT_ROWS_AT_A_TIME)
        self.index = index


def _whole_keys(ivf: Any) -> bool:
    """Whether the lists hold keys as they were added (float16 lists are made for float16 keys alone)."""
    if isinstance(ivf, faiss.IndexIVFScalarQuantizer):
        return ivf.sq.qtype == faiss.ScalarQuantizer.QT_fp16 and not ivf.by_residual
    return isinstance(ivf, faiss.IndexIVFFlat)
