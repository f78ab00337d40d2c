"""Building an index in steps that can be resumed: train, add keys part by part, merge the parts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import faiss
import numpy as np

from stages.array_files import save_arrays
from stages.errors import ArtifactError
from stages.search.config import IndexConfig
from stages.search.factory import empty_index, refusals
from stages.search.keys import StoredKeys, widened
from stages.search.lists import ROW_BYTES, ListsInMemory, write_with_lists

WRITE_BYTES = 1 << 20
"""Bytes of an index that are written at a time."""
MERGED_BYTES = 64 << 20
"""Bytes of lists that are merged at a time; a single list may take more."""


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
    """Write an index through Python, which raises OSError if the disk fails; FAISS itself only prints a message."""
    with path.open("wb") as file:
        writer = faiss.PyCallbackIOWriter(file.write, WRITE_BYTES)  # type: ignore[attr-defined]
        faiss.write_index(index, writer)


def grows_in_parts(index: Any) -> bool:
    """Whether lists that were filled separately can be merged: all keys must be in the lists."""
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is None or not isinstance(index, faiss.IndexIVF | faiss.IndexPreTransform):
        return False
    return type(faiss.downcast_index(ivf)) in (
        faiss.IndexIVFFlat,
        faiss.IndexIVFPQ,
        faiss.IndexIVFScalarQuantizer,
    )


class FilledLists(NamedTuple):
    """Keys sorted into lists.

    Attributes:
        sizes: [lists] int64.
        ids: [n] int64 rows, list by list.
        codes: [n, code size] uint8, in the order of `ids`.
    """

    sizes: np.ndarray
    ids: np.ndarray
    codes: np.ndarray

    def write(self, path: Path) -> None:
        save_arrays(path, *self)

    def each(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Codes and rows of each list, in order."""
        start = 0
        for size in self.sizes.tolist():
            yield self.codes[start : start + size], self.ids[start : start + size]
            start += size


class PartFile:
    """A file that `FilledLists.write` wrote; a few lists are read at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.sizes = np.load(file, allow_pickle=False)
            self._ids = _skip_header(file)
            file.seek(self._ids + 8 * int(self.sizes.sum()))
            self._codes = _skip_header(file)
            file.seek(0, SEEK_END)
            self._width = (file.tell() - self._codes) // max(1, int(self.sizes.sum()))

    def read(self, lists: slice) -> FilledLists:
        """Consecutive lists."""
        sizes, before = self.sizes[lists], int(self.sizes[: lists.start].sum())
        count = int(sizes.sum())
        ids = np.fromfile(self.path, np.int64, count, offset=self._ids + 8 * before)
        codes = np.fromfile(self.path, np.uint8, count * self._width, offset=self._codes + self._width * before)
        return FilledLists(sizes, ids, codes.reshape(count, self._width))


def _skip_header(file: BinaryIO) -> int:
    """Skip the header of a NumPy array that begins here; returns the offset of its values."""
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    return file.tell()


def write_part(
    trained: Any,
    keys: StoredKeys,
    shards: Iterable[int],
    path: Path,
    wanted: Callable[[np.ndarray], np.ndarray] | None = None,
) -> int:
    """Sort the keys of some shards into lists, and write the lists; returns the number of keys.

    Args:
        trained: the trained index, empty before and after.
        wanted: gives the mask bool [n] of rows [n] that are added; None: all are.
    """
    # FAISS keeps the order of added keys, so rows rise within each list
    for first, block in keys.each(shards):
        rows = np.arange(first, first + len(block))
        if wanted is not None:
            rows = rows[wanted(rows)]
        trained.add_with_ids(widened(block[rows - first]), rows)
    part = _part_of(faiss.extract_index_ivf(trained))
    part.write(path)
    trained.reset()
    return len(part.ids)


def _part_of(ivf: Any) -> FilledLists:
    lists = ListsInMemory(ivf)
    total = lists.sizes.sum()
    part = FilledLists(lists.sizes, np.empty(total, np.int64), np.empty((total, ivf.code_size), np.uint8))
    ends = np.cumsum(lists.sizes)
    for number in np.flatnonzero(lists.sizes).tolist():
        place = slice(ends[number] - lists.sizes[number], ends[number])
        part.ids[place], part.codes[place] = lists.ids(number), lists.codes(number)
    return part


class Source(Protocol):
    """A source of lists that are merged into an index; `sizes`: number of keys in each list, int64 [lists]."""

    sizes: np.ndarray

    def read(self, lists: slice) -> FilledLists:
        """Consecutive lists."""


def merge(trained: Any, sources: Sequence[Source], rows: int, path: Path) -> None:
    """Write a trained index with the lists of all sources, in order; memory holds a few consecutive lists at a time.

    Raises: ArtifactError if there are not exactly `rows` keys.
    """
    sizes = sum((source.sizes for source in sources), np.zeros(faiss.extract_index_ivf(trained).nlist, np.int64))
    if sizes.sum() != rows:
        raise ArtifactError(f"The parts of the index hold {sizes.sum():,} of {rows:,} keys; remove {path.parent}.")
    width = faiss.extract_index_ivf(trained).code_size + ROW_BYTES
    write_with_lists(trained, rows, sizes, _merged(sources, sizes, max(1, MERGED_BYTES // width)), path)


def _merged(sources: Sequence[Source], sizes: np.ndarray, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Codes and rows of each list, in order; about `at_once` keys are read at a time."""
    groups = np.flatnonzero(np.diff(np.cumsum(sizes) // at_once, prepend=-1))
    for first, stop in zip(groups.tolist(), [*groups[1:].tolist(), len(sizes)], strict=True):
        pieces = [source.read(slice(first, stop)) for source in sources]
        for same in zip(*(piece.each() for piece in pieces), strict=True):
            codes, ids = map(np.concatenate, zip(*same, strict=True))
            yield _rising(codes, ids)


def _rising(codes: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and rows of a list, sorted by row since search relies on it; rows encoded again may be out of order."""
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
        with refusals():
            trained.add(widened(block))
