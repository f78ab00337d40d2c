"""Changing an index with lists: removed keys leave it, kept keys get their new rows, and new keys
are appended.

Only the lists change. The trained parameters stay, except centroids of lists that lose keys: a
centroid is a mean of keys, and perhaps of a single one. `no_longer_fits` reports when the lists no
longer suit their keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import faiss
import numpy as np

from stages.search.build import FilledLists, grows_in_parts, merge, write_index
from stages.search.config import IndexConfig
from stages.search.factory import empty_index
from stages.search.keys import widened
from stages.search.lists import InvertedLists, holds_whole_keys
from stages.search.open import read_index


class KeptKeys(Protocol):
    """Rows that keep their keys, and their new numbers; arguments and results are int64 [n] or bool
    [n].
    """

    @property
    def rows(self) -> int:
        """Number of rows that stay."""

    def before(self, rows: np.ndarray) -> np.ndarray:
        """New numbers of rows that stay."""

    def contains(self, rows: np.ndarray) -> np.ndarray:
        """Mask of the rows that keep their keys."""


def can_change(config: IndexConfig, dim: int, dtype: str, *, removes: bool) -> bool:
    """Whether an index of resolved settings can be changed in place.

    Keys can be added if lists can be merged. Keys can be removed if only centroids were learned
    from them, since a centroid can be moved. Learned codes, or codes relative to a centroid, could
    still reveal a removed key.
    """
    index = empty_index(config, dim, dtype)
    if not grows_in_parts(index):
        return False
    return not removes or (
        holds_whole_keys(index)
        and isinstance(faiss.downcast_index(index.quantizer), faiss.IndexFlat)
    )


def write_emptied(old: Path, kept_keys: KeptKeys, path: Path) -> None:
    """Write a trained index without its keys; centroids are moved to the means of the keys that
    stay.
    """
    index = read_index(old, mapped=True)
    ivf = faiss.extract_index_ivf(index)
    if kept_keys.rows < index.ntotal:
        _move_centroids(faiss.downcast_index(ivf), kept_keys)

    empty: Any = faiss.ArrayInvertedLists(ivf.nlist, ivf.code_size)
    empty.this.disown()  # the index deletes it
    ivf.replace_invlists(empty, True)
    index.reset()
    write_index(index, path)


def _move_centroids(ivf: Any, kept_keys: KeptKeys) -> None:
    """Move the centroid of each list that loses keys to the mean of the rest; if none stay, of the
    other centroids.
    """
    flat: Any = faiss.downcast_index(ivf.quantizer)
    # a view: what is written to it stands in the index
    numbers = faiss.rev_swig_ptr(flat.get_xb(), ivf.nlist * ivf.d)
    centroids = numbers.reshape(ivf.nlist, ivf.d)

    lists = InvertedLists(ivf)
    emptied = []
    for number in lists.filled:
        stays = kept_keys.contains(lists.ids(number))
        if not stays.any():
            emptied.append(number)
        elif not stays.all():
            keys = widened(lists.keys(number)[stays])
            centroids[number] = keys.mean(axis=0)

    others = np.delete(centroids, emptied, axis=0)
    centroids[emptied] = others.mean(axis=0) if len(others) else 0
    if ivf.cp.spherical:
        lengths = np.linalg.norm(centroids, axis=1, keepdims=True)
        centroids /= lengths.clip(1e-12)


def merge_changed(
    old: Path, trained: Any, kept_keys: KeptKeys, parts: list[Path], rows: int, path: Path
) -> dict[str, float]:
    """Write the changed index: keys of `old` that stay, and keys of the parts; memory holds some
    lists at a time.

    Args:
        trained: the index that `write_emptied` wrote.
        parts: lists of the keys to add: of new rows, and of rows that were encoded again.
        rows: number of keys that the changed index must have.
    Returns: `imbalance_before` and `imbalance` of its lists; see `imbalance`.
    """
    index = read_index(old, mapped=True)
    stored = InvertedLists(faiss.extract_index_ivf(index))
    remaining = KeptLists(stored, kept_keys)
    added = [FilledLists.read(part) for part in parts]
    sizes = merge(trained, [remaining, *added], rows, path)
    return {"imbalance_before": imbalance(stored.sizes), "imbalance": imbalance(sizes)}


class KeptLists:
    """Lists without the removed keys, and with new row numbers; keys keep their order, so rows
    still rise.
    """

    def __init__(self, lists: InvertedLists, kept_keys: KeptKeys) -> None:
        self._lists = lists
        self._kept = kept_keys
        self.sizes = np.zeros_like(lists.sizes)
        for number in lists.filled:
            self.sizes[number] = kept_keys.contains(lists.ids(number)).sum()

    def contents(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self._lists.ids(number)
        stays = self._kept.contains(rows)
        return self._lists.codes(number)[stays], self._kept.before(rows[stays])


def imbalance(sizes: np.ndarray) -> float:
    """Mean length of a key's own list, divided by the mean length of all lists.

    It is 1 if all lists are equally long, and the number of lists if one holds all keys.

    >>> imbalance(np.array([5, 5])), imbalance(np.array([10, 0]))
    (1.0, 2.0)
    """
    num_keys = float(sizes.sum())
    if not num_keys:
        return 1.0
    # a list of n keys is the own list of n keys, so its length counts n times
    squared_sizes = sizes.astype(np.float64) ** 2
    return round(len(sizes) * float(squared_sizes.sum()) / num_keys**2, 3)


MOST_LOST_RECALL = 0.02
MOST_GROWTH = 4
MOST_UNEVEN = 2
"""Limits beyond which new lists are needed: the loss of recall, and the growth of keys and of
imbalance as factors.
"""
SURE = 2
"""Standard errors by which a loss of recall must exceed its limit, since few queries are sampled.
"""


class LearnedLists(NamedTuple):
    """An index at the time its lists were learned: keys, recall by k (empty: not measured), and
    `imbalance`.
    """

    rows: int
    recall: Mapping[str, float]
    imbalance: float


def no_longer_fits(
    learned: LearnedLists,
    rows: int,
    recall: Mapping[str, float],
    error: Mapping[str, float],
    imbalance: float,
) -> str | None:
    """Reason why the lists no longer suit their keys; None: they do.

    Args:
        rows: present number of keys.
        recall: present recall by k, and its standard `error`; empty if it was not measured.
        imbalance: present imbalance.

    >>> no_longer_fits(LearnedLists(100, {"1": 0.95}, 1.2), 200, {"1": 0.9}, {"1": 0.01}, 1.3)
    '90.0% of the 1 nearest keys are found, 95.0% at first'
    >>> no_longer_fits(LearnedLists(100, {"1": 0.95}, 1.2), 200, {"1": 0.9}, {"1": 0.02}, 1.3)
    >>> no_longer_fits(LearnedLists(100, {}, 1.2), 500, {}, {}, 1.3)
    'they hold 500, so that a query reads 5.0 times as many'
    >>> no_longer_fits(LearnedLists(100, {}, 1.2), 200, {}, {}, 1.3)
    """
    # the loss by each k that is certain, given the sampling error
    lost = {
        k: learned.recall[k] - share - SURE * error[k]
        for k, share in recall.items()
        if k in learned.recall
    }
    worst_k = max(lost, key=lost.__getitem__, default=None)
    if worst_k is not None and lost[worst_k] > MOST_LOST_RECALL:
        now = recall[worst_k]
        then = learned.recall[worst_k]
        return f"{now:.1%} of the {worst_k} nearest keys are found, {then:.1%} at first"

    if rows > MOST_GROWTH * learned.rows:
        growth = rows / learned.rows
        return f"they hold {rows:,}, so that a query reads {growth:.1f} times as many"

    if imbalance > MOST_UNEVEN * learned.imbalance:
        growth = imbalance / learned.imbalance
        return f"some are so long that a query reads {growth:.1f} times as many"
    return None
