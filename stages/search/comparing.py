"""An index compared with the keys that it was made of: every row once, and codes as near to their keys as can be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np

from stages.search.build import grows_in_parts
from stages.search.keys import StoredKeys, widened
from stages.search.lists import DecodedLists, Lists, ListsInFile, ListsInMemory
from stages.search.open import read_index

SAMPLE_BYTES = 1 << 26
"""Bytes of stored keys that are compared; of more, shards drawn at random."""
WORSE, OF_LENGTH = 1e-3, 1e-6
"""Shares of its own error, and of a key's squared length, by which a code of another machine may be worse."""


class _Sample(NamedTuple):
    """Some keys: rows int64 [n], rising, and the keys float32 [n, dim]."""

    rows: np.ndarray
    keys: np.ndarray


def wrong_rows(path: Path, keys: StoredKeys) -> str | None:
    """Describe the rows of an index file that are not those of its keys; None: none that a sample shows.

    Raises: ArtifactError if the file is no index.
    """
    lists = _lists_of(path)
    index = read_index(path) if lists is None else lists.index()
    ivf: Any = faiss.try_extract_index_ivf(index)
    listed: Lists | None = None if ivf is None else lists or ListsInMemory(ivf)
    rows_held = np.arange(index.ntotal) if listed is None else _rows_of(listed)
    if len(rows_held) != keys.rows or not np.array_equal(np.unique(rows_held), np.arange(keys.rows)):
        held = len(np.unique(rows_held))
        return f"it has {len(rows_held):,} keys of {held:,} rows, and its datastore {keys.rows:,}"
    sample = _sample(keys)
    wrong = list(_in_order(index, sample) if listed is None else _in_lists(index, listed, sample))
    rows = np.sort(np.concatenate([np.empty(0, np.int64), *wrong]))
    if not len(rows):
        return None
    return f"{len(rows):,} of its keys are not those of its datastore's rows, {rows[0]:,} the first"


def _rows_of(lists: Lists) -> np.ndarray:
    """The rows that lists hold, in any order, int64."""
    filled = [lists.ids(number) for number in np.flatnonzero(lists.sizes).tolist()]
    return np.concatenate([np.empty(0, np.int64), *filled])


def _lists_of(path: Path) -> ListsInFile | None:
    try:
        return ListsInFile(path)
    except ValueError:  # no lists, or a file that FAISS itself refuses
        return None


def _sample(keys: StoredKeys) -> _Sample:
    most = max(1, SAMPLE_BYTES // (keys.rows_per_shard * keys.dim * keys.dtype.itemsize))
    chosen = sorted(np.random.default_rng(0).permutation(keys.shards)[:most].tolist())
    rows = np.concatenate([np.arange(*keys.bounds(shard)) for shard in chosen])
    return _Sample(rows, np.concatenate([widened(keys.read(shard)) for shard in chosen]))


def _in_lists(index: Any, lists: Lists, sample: _Sample) -> Iterator[np.ndarray]:
    """Rows of a sample whose codes in lists are not those of their keys; none of kinds whose codes are packed."""
    if not grows_in_parts(index):
        return
    ivf: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
    keys = sample.keys
    if isinstance(index, faiss.IndexPreTransform):
        chain: Any = index.chain
        for step in range(chain.size()):
            keys = chain.at(step).apply(keys)
    stored = DecodedLists(ivf, lists)
    for number in np.flatnonzero(lists.sizes).tolist():
        rows = lists.ids(number)
        places = np.searchsorted(sample.rows, rows).clip(max=len(sample.rows) - 1)
        among = np.flatnonzero(sample.rows[places] == rows)
        if len(among):
            own = keys[places[among]]
            ideal = stored.decoded(number, _codes(ivf, own, number))
            yield rows[among][_differ(own, stored.decoded(number, lists.codes(number)[among]), ideal)]


def _codes(ivf: Any, keys: np.ndarray, number: int) -> np.ndarray:
    """Codes of keys in a list, uint8 [n, bytes of a code]."""
    codes = np.empty((len(keys), ivf.code_size), np.uint8)
    pointers = map(faiss.swig_ptr, (np.ascontiguousarray(keys), np.full(len(keys), number, np.int64), codes))
    ivf.encode_vectors(len(keys), *pointers)
    return codes


def _in_order(index: Any, sample: _Sample) -> Iterator[np.ndarray]:
    """Rows of a sample that an index without lists holds otherwise; none of kinds that cannot give keys back."""
    codes = index.storage if isinstance(index, faiss.IndexHNSW) else index
    try:
        stored = codes.reconstruct_batch(sample.rows)
        ideal = codes.sa_decode(codes.sa_encode(sample.keys))
    except RuntimeError:
        return
    yield sample.rows[_differ(sample.keys, stored, ideal)]


def _differ(keys: np.ndarray, stored: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """Which stored keys are farther from the keys than what their codes can hold of them, bool [n]."""
    error, least = (np.square(one.astype(np.float32) - keys).sum(axis=1) for one in (stored, ideal))
    slack = np.where(least > 0, WORSE * least + OF_LENGTH * np.square(keys).sum(axis=1), 0)
    found: np.ndarray = error > least + slack
    return found
