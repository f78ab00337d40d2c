"""Building an index in steps that can be resumed: train, add keys part by part, merge the parts."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import faiss
import numpy as np

from stages.array_files import map_arrays, save_arrays
from stages.errors import ArtifactError, UsageError
from stages.search.config import IndexConfig
from stages.search.factory import empty_index, refusals
from stages.search.keys import StoredKeys, widened
from stages.search.lists import KINDS_OF_KEYS, InvertedLists, write_with_lists

WRITE_BYTES = 1 << 20
"""Bytes of an index that are written at a time."""
LARGEST_HALF = float(np.finfo(np.float16).max)
"""Largest number in half precision."""


def training_sample(keys: StoredKeys, count: int, seed: int) -> np.ndarray:
    """Random sample of `count` keys without replacement, in row order, [count, dim] float32."""
    rows = np.random.default_rng(seed).choice(keys.rows, count, replace=False)
    return keys.take(np.sort(rows))


def trained_index(config: IndexConfig, keys: StoredKeys) -> Any:
    """An empty index that has learned lists and codes from a sample of the keys."""
    index = empty_index(config, keys.dim, keys.dtype.name)
    if not index.is_trained:
        assert isinstance(config.train_keys, int)
        with refusals():
            index.train(training_sample(keys, config.train_keys, config.seed))
    return index


def train(config: IndexConfig, keys: StoredKeys, path: Path) -> None:
    """Train an index on the keys, and write it empty."""
    write_index(trained_index(config, keys), path)


def write_index(index: Any, path: Path) -> None:
    """Write an index through Python, which raises OSError if the disk fails; FAISS itself only
    prints a message.
    """
    with path.open("wb") as file:
        writer = faiss.PyCallbackIOWriter(file.write, WRITE_BYTES)  # type: ignore[attr-defined]
        faiss.write_index(index, writer)


def grows_in_parts(index: Any) -> bool:
    """Whether lists that were filled separately can be merged: all keys must be in the lists."""
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is None or not isinstance(index, faiss.IndexIVF | faiss.IndexPreTransform):
        return False
    return type(faiss.downcast_index(ivf)) in KINDS_OF_KEYS


class FilledLists:
    """Keys sorted into lists: a source of lists that are merged into an index.

    Attributes:
        sizes: [lists] int64.
        ids: [n] int64 rows, list by list.
        codes: [n, code size] uint8, in the order of `ids`.
    """

    def __init__(self, sizes: np.ndarray, ids: np.ndarray, codes: np.ndarray) -> None:
        self.sizes = sizes
        self.ids = ids
        self.codes = codes
        self._ends = np.cumsum(sizes)

    @classmethod
    def of(cls, ivf: Any) -> Self:
        """The lists of an index, copied."""
        lists = InvertedLists(ivf)
        ids = [np.empty(0, np.int64), *map(lists.ids, lists.filled)]
        codes = [np.empty((0, ivf.code_size), np.uint8), *map(lists.codes, lists.filled)]
        return cls(lists.sizes, np.concatenate(ids), np.concatenate(codes))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Lists in a file that `write` wrote, memory-mapped."""
        return cls(*map_arrays(path, 3))

    def write(self, path: Path) -> None:
        save_arrays(path, self.sizes, self.ids, self.codes)

    def contents(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes and rows of a list with keys."""
        place = slice(self._ends[number] - self.sizes[number], self._ends[number])
        return self.codes[place], self.ids[place]


def write_part(
    trained: Any,
    keys: StoredKeys,
    shards: Iterable[int],
    path: Path,
    selects: Callable[[np.ndarray], np.ndarray] | None = None,
) -> int:
    """Sort the keys of some shards into lists, and write the lists; returns the number of keys.

    Args:
        trained: the trained index, empty before and after.
        selects: gives the mask bool [n] of rows [n] that are added; None: all are.
    """
    # FAISS keeps the order of added keys, so rows rise within each list
    for first, block in keys.each(shards):
        rows = np.arange(first, first + len(block))
        if selects is not None:
            rows = rows[selects(rows)]
        vectors = widened(block[rows - first])
        _require_finite_codes(trained, vectors)
        trained.add_with_ids(vectors, rows)
    part = FilledLists.of(faiss.extract_index_ivf(trained))
    part.write(path)
    trained.reset()
    return len(part.ids)


class ListSource(Protocol):
    """Lists that are merged into an index.

    Attributes:
        sizes: number of keys in each list, int64 [lists].
    """

    sizes: np.ndarray

    def contents(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes and rows of a list with keys."""


def merge(trained: Any, sources: Sequence[ListSource], rows: int, path: Path) -> np.ndarray:
    """Write a trained index with the lists of all sources, in order; memory holds one list at a
    time.

    Returns: number of keys in each list, int64 [lists].
    Raises: ArtifactError if there are not exactly `rows` keys.
    """
    num_lists = faiss.extract_index_ivf(trained).nlist
    sizes = np.zeros(num_lists, np.int64)
    for source in sources:
        sizes += source.sizes
    num_keys = sizes.sum()
    if num_keys != rows:
        raise ArtifactError(
            f"The parts of the index hold {num_keys:,} of {rows:,} keys; remove {path.parent}."
        )

    filled = np.flatnonzero(sizes).tolist()
    lists = (_merged(sources, number) for number in filled)
    write_with_lists(trained, rows, sizes, lists, path)
    return sizes


def _merged(sources: Sequence[ListSource], number: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes and rows of a list, sorted by row since search relies on it."""
    pieces = [source.contents(number) for source in sources if source.sizes[number]]
    codes, ids = map(np.concatenate, zip(*pieces, strict=True))
    # rows that were encoded again may be out of order
    if (ids[1:] > ids[:-1]).all():
        return codes, ids
    order = np.argsort(ids)
    return codes[order], ids[order]


def build_whole(trained: Any, keys: StoredKeys, path: Path) -> None:
    """Add all keys to an index that does not grow in parts, and write it."""
    add_keys(trained, keys)
    write_index(trained, path)


def add_keys(trained: Any, keys: StoredKeys) -> None:
    """Add all keys to a trained index."""
    for _, block in keys.each():
        vectors = widened(block)
        _require_finite_codes(trained, vectors)
        with refusals():
            trained.add(vectors)


def _require_finite_codes(index: Any, vectors: np.ndarray) -> None:
    """Check that the codes of an index hold finite numbers for these keys, float32 [n, dim].

    FAISS writes a key beyond half precision as infinity, and then answers that nothing is near.

    Raises: UsageError if one does not.
    """
    # Residuals are differences of two keys, so below this half none of them overflows.
    if np.abs(vectors).max(initial=0) <= LARGEST_HALF / 2:
        return
    is_graph = isinstance(index, faiss.IndexHNSW)
    holder = faiss.downcast_index(index.storage) if is_graph else index
    try:
        held = holder.sa_decode(holder.sa_encode(vectors))
    except RuntimeError:  # some kinds have no codes that stand alone
        return
    infinite = vectors[~np.isfinite(held).all(axis=1)]
    if len(infinite):
        raise UsageError(
            f"This index holds numbers up to {LARGEST_HALF:,.0f}, and a key has "
            f"{np.abs(infinite[0]).max():,.4g}: choose another --index, such as SQbf16, SQ8 or Flat in the place "
            "of SQfp16."
        )
