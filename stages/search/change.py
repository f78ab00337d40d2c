"""Changing an index with lists: keys that go leave it, those that stay get their new rows, others are added behind.

Only the lists are changed; what was learned stays, but for centroids of keys that went: a centroid is a mean of keys,
and may be that of one. `no_longer_fits` tells when lists no longer suit their keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import faiss
import numpy as np

from stages.errors import content_of
from stages.search.build import FilledLists, PartFile, Source, grows_in_parts, merge, write_index
from stages.search.config import IndexConfig
from stages.search.factory import empty_index
from stages.search.keys import widened
from stages.search.lists import DecodedLists, Lists, ListsInFile, filled, holds_whole_keys


class KeptKeys(Protocol):
    """Rows that stay with their keys, and their new numbers; arguments and results are int64 [n] or bool [n]."""

    @property
    def rows(self) -> int:
        """How many stay."""

    def before(self, rows: np.ndarray) -> np.ndarray:
        """New numbers of rows that stay."""

    def contains(self, rows: np.ndarray) -> np.ndarray:
        """Which rows stay with their keys."""


def can_change(config: IndexConfig, dim: int, dtype: str, *, removes: bool) -> bool:
    """Whether an index of resolved settings can be changed in place.

    Keys can be added wherever lists can be merged. They can be removed where nothing but a list's centroid was learned
    of them, so that it can be moved: codes that are differences from a centroid, or were learned, could tell of them.
    """
    index = empty_index(config, dim, dtype)
    if not grows_in_parts(index):
        return False
    return not removes or (holds_whole_keys(index) and isinstance(faiss.downcast_index(index.quantizer), _FLAT))


_FLAT = (faiss.IndexFlat, faiss.IndexFlatL2, faiss.IndexFlatIP)


def write_emptied(old: Path, kept: KeptKeys, path: Path) -> None:
    """Write an index without its keys, trained as it was, its centroids moved to what stays of their keys."""
    with content_of(old):
        stored = ListsInFile(old)
        index = stored.index()
    if kept.rows < index.ntotal:
        _move_centroids(index, stored, kept)
    index.reset()
    write_index(index, path)


def _move_centroids(ivf: Any, stored: Lists, kept: KeptKeys) -> None:
    """Put the centroid of each list that loses keys into the mean of those that stay; if none do, of all lists."""
    lists, centroids = DecodedLists(ivf, stored), _centroids(ivf)
    emptied = []
    for number in filled(stored):
        stays = kept.contains(lists.ids(number))
        if stays.any() and not stays.all():
            centroids[number] = widened(lists.keys(number)[stays]).mean(axis=0)
        elif not stays.any():
            emptied.append(number)
    others = np.delete(centroids, emptied, axis=0)
    centroids[emptied] = others.mean(axis=0) if len(others) else 0
    if ivf.cp.spherical:
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True).clip(1e-12)


def _centroids(ivf: Any) -> np.ndarray:
    """Float32 [lists, dim], a view."""
    flat: Any = faiss.downcast_index(ivf.quantizer)
    return faiss.rev_swig_ptr(flat.get_xb(), ivf.nlist * ivf.d).reshape(ivf.nlist, ivf.d)


def merge_changed(
    old: Path, trained: Any, kept: KeptKeys, parts: list[Path], rows: int, path: Path
) -> dict[str, float]:
    """Write the index `old` changed: the keys that stay and those of the parts; holds some lists at a time.

    Args:
        trained: as `write_emptied` wrote it.
        parts: lists of the keys that are added: of new rows, and of rows that were encoded again.
        rows: keys that there must be in the end.
    Returns: `imbalance_before` and `imbalance` of its lists, see `imbalance`.
    """
    with content_of(old):
        stored = ListsInFile(old)
        stays = KeptLists(stored, kept, faiss.extract_index_ivf(trained).code_size)
    sources: list[Source] = [stays, *(PartFile(part) for part in parts)]
    merge(trained, sources, rows, path)
    sizes = sum((source.sizes for source in sources), np.zeros_like(stored.sizes))
    return {"imbalance_before": imbalance(stored.sizes), "imbalance": imbalance(sizes)}


class KeptLists:
    """Lists without what goes, rows renumbered; the others keep their order, so that rows rise in them."""

    def __init__(self, lists: Lists, kept: KeptKeys, width: int) -> None:
        self._lists, self._kept, self._width = lists, kept, width
        self.sizes = np.zeros_like(lists.sizes)
        for number in filled(lists):
            self.sizes[number] = kept.contains(lists.ids(number)).sum()

    def read(self, lists: slice) -> FilledLists:
        sizes = self.sizes[lists]
        codes, ids = [np.empty((0, self._width), np.uint8)], [np.empty(0, np.int64)]
        for number in (lists.start + np.flatnonzero(sizes)).tolist():
            own = self._lists.ids(number)
            stays = self._kept.contains(own)
            ids.append(self._kept.before(own[stays]))
            codes.append(self._lists.codes(number)[stays])
        return FilledLists(sizes, np.concatenate(ids), np.concatenate(codes))


def imbalance(sizes: np.ndarray) -> float:
    """How much longer the list of a key is than lists are on average: 1 if all are as long, [lists] if one has all.

    >>> imbalance(np.array([5, 5])), imbalance(np.array([10, 0]))
    (1.0, 2.0)
    """
    total = float(sizes.sum())
    return round(len(sizes) * float((sizes.astype(np.float64) ** 2).sum()) / total**2, 3) if total else 1.0


MOST_LOST_RECALL, MOST_GROWTH, MOST_UNEVEN = 0.02, 4, 2
"""Beyond these other lists are needed: share of neighbours no longer found, times the keys, times the imbalance."""
SURE = 2
"""Standard errors that a loss of recall must exceed that by, not to be one of the draw of a few queries."""


class Learned(NamedTuple):
    """An index when its lists were learned: its keys, recall by k (empty if it was not measured), see `imbalance`."""

    rows: int
    recall: Mapping[str, float]
    imbalance: float


def no_longer_fits(
    learned: Learned, rows: int, recall: Mapping[str, float], error: Mapping[str, float], imbalance: float
) -> str | None:
    """Reason why the lists no longer suit the keys that they hold; None: they do.

    Args:
        rows: keys that they hold now.
        recall: by k, now, with its standard `error`; empty if it was not measured.
        imbalance: now.

    >>> no_longer_fits(Learned(100, {"1": 0.95}, 1.2), 200, {"1": 0.9}, {"1": 0.01}, 1.3)
    '90.0% of the 1 nearest keys are found, 95.0% at first'
    >>> no_longer_fits(Learned(100, {"1": 0.95}, 1.2), 200, {"1": 0.9}, {"1": 0.02}, 1.3)
    >>> no_longer_fits(Learned(100, {}, 1.2), 500, {}, {}, 1.3)
    'they hold 500, so that a query reads 5.0 times as many'
    >>> no_longer_fits(Learned(100, {}, 1.2), 200, {}, {}, 1.3)
    """
    lost = {k: learned.recall[k] - found - SURE * error[k] for k, found in recall.items() if k in learned.recall}
    worst = max(lost, key=lost.__getitem__, default=None)
    if worst is not None and lost[worst] > MOST_LOST_RECALL:
        return f"{recall[worst]:.1%} of the {worst} nearest keys are found, {learned.recall[worst]:.1%} at first"
    if rows > MOST_GROWTH * learned.rows:
        return f"they hold {rows:,}, so that a query reads {rows / learned.rows:.1f} times as many"
    if imbalance > MOST_UNEVEN * learned.imbalance:
        return f"some are so long that a query reads {imbalance / learned.imbalance:.1f} times as many"
    return None
