"""Building an index in steps that can be kept: train, add keys part by part, merge the parts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np

from stages.array_files import save_arrays
from stages.errors import ArtifactError
from stages.search.config import IndexConfig
from stages.search.factory import empty_index
from stages.search.factory_string import refusals
from stages.search.keys import StoredKeys, widened

WRITE_BYTES = 1 << 20
"""Bytes of an index handed over at a time."""


def training_sample(keys: StoredKeys, count: int, seed: int) -> np.ndarray:
    """`count` keys drawn at random without repetition, in row order, [count, dim] float32."""
    rows = np.random.default_rng(seed).choice(keys.rows, count, replace=False)
    return keys.take(np.sort(rows))


def train(config: IndexConfig, keys: StoredKeys, path: Path) -> None:
    """Learn lists and codes from a sample, and write the empty index."""
    index = empty_index(config, keys.dim, keys.dtype.name)
    if not index.is_trained:
        assert isinstance(config.train_keys, int)
        with refusals():
            index.train(training_sample(keys, config.train_keys, config.seed))
    write_index(index, path)


def write_index(index: Any, path: Path) -> None:
    """Write an index through Python, which raises OSError where FAISS's own file only prints that it is not whole."""
    with path.open("wb") as file:
        writer = faiss.PyCallbackIOWriter(file.write, WRITE_BYTES)  # type: ignore[attr-defined]
        faiss.write_index(index, writer)


def grows_in_parts(index: Any) -> bool:
    """Whether lists filled apart can be merged: keys live in the lists alone, whatever stands before them."""
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

    @classmethod
    def read(cls, path: Path) -> "FilledLists":
        with path.open("rb") as file:
            return cls(*(np.load(file, allow_pickle=False) for _ in cls._fields))

    @staticmethod
    def sizes_of(path: Path) -> np.ndarray:
        """The sizes alone."""
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)


def write_part(trained: Any, keys: StoredKeys, shards: Iterable[int], path: Path, begin: int = 0) -> int:
    """Sort the keys of some shards, from row `begin` on, into lists, and write these; returns the number of keys.

    `trained` is empty before and after.
    """
    for first, block in keys.each(shards):
        new = block[max(0, begin - first) :]
        trained.add_with_ids(widened(new), np.arange(first + len(block) - len(new), first + len(block)))
    part = _part_of(faiss.extract_index_ivf(trained))
    part.write(path)
    trained.reset()
    return len(part.ids)


def _part_of(ivf: Any) -> FilledLists:
    lists, width = ivf.invlists, ivf.code_size
    sizes = np.array([lists.list_size(number) for number in range(ivf.nlist)])
    part = FilledLists(sizes, np.empty(sizes.sum(), np.int64), np.empty((sizes.sum(), width), np.uint8))
    ends = np.cumsum(sizes)
    for number in np.flatnonzero(sizes).tolist():
        place, size = slice(ends[number] - sizes[number], ends[number]), int(sizes[number])
        part.ids[place] = faiss.rev_swig_ptr(lists.get_ids(number), size)
        part.codes[place] = faiss.rev_swig_ptr(lists.get_codes(number), size * width).reshape(size, width)
    return part


def merge(index: Any, parts: list[Path], rows: int, path: Path) -> None:
    """Fill a trained index with the parts, in order, behind what its lists hold, and write it.

    Holds the index and one part. Raises: ArtifactError if there are not exactly `rows` keys.
    """
    ivf: Any = faiss.extract_index_ivf(index)
    filled = list_sizes(ivf)
    sizes = sum((FilledLists.sizes_of(part) for part in parts), filled.copy())
    if sizes.sum() != rows:
        raise ArtifactError(f"The parts of the index hold {sizes.sum():,} of {rows:,} keys; remove {path.parent}.")
    for number, size in enumerate(sizes.tolist()):
        ivf.invlists.resize(number, size)
    for part in parts:
        filled += _insert(FilledLists.read(part), ivf.invlists, filled)
    index.ntotal = ivf.ntotal = rows
    write_index(index, path)


def list_sizes(ivf: Any) -> np.ndarray:
    """Keys in each list, int64 [lists]."""
    return np.array([ivf.invlists.list_size(number) for number in range(ivf.nlist)], np.int64)


def _insert(part: FilledLists, lists: Any, offsets: np.ndarray) -> np.ndarray:
    """Copy the lists of a part into `lists` from these offsets on; returns their sizes."""
    starts = np.cumsum(part.sizes) - part.sizes
    for number in np.flatnonzero(part.sizes).tolist():
        place = slice(starts[number], starts[number] + part.sizes[number])
        ids, codes = faiss.swig_ptr(part.ids[place]), faiss.swig_ptr(part.codes[place])
        lists.update_entries(number, int(offsets[number]), int(part.sizes[number]), ids, codes)
    return part.sizes


def build_whole(trained: Any, keys: StoredKeys, path: Path) -> None:
    """Add all keys to an index that does not grow in parts, and write it."""
    for _, block in keys.each():
        with refusals():
            trained.add(widened(block))
    write_index(trained, path)
