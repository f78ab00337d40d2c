"""Building an index in steps that can be kept: train, add keys part by part, merge the parts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from stages.errors import ArtifactError
from stages.search.config import IndexConfig
from stages.search.factory import empty_index
from stages.search.keys import StoredKeys, widened


def training_sample(keys: StoredKeys, count: int, seed: int) -> np.ndarray:
    """`count` keys drawn at random without repetition, in row order, [count, dim] float32."""
    rows = np.random.default_rng(seed).choice(keys.rows, count, replace=False)
    return keys.take(np.sort(rows))


def train(config: IndexConfig, keys: StoredKeys, path: Path) -> None:
    """Learn lists and codes from a sample, and write the empty index."""
    index = empty_index(config, keys.dim, keys.dtype.name)
    if not index.is_trained:
        assert isinstance(config.train_keys, int)
        index.train(training_sample(keys, config.train_keys, config.seed))
    faiss.write_index(index, str(path))


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


def write_part(trained: Any, keys: StoredKeys, shards: Iterable[int], path: Path) -> int:
    """Sort the keys of some shards into lists, and write these lists; returns the number of keys.

    `trained` is empty before and after.
    """
    added = 0
    for first, block in keys.each(shards):
        trained.add_with_ids(widened(block), np.arange(first, first + len(block)))
        added += len(block)
    ivf: Any = faiss.extract_index_ivf(trained)
    writer = faiss.FileIOWriter(str(path))
    faiss.write_InvertedLists(ivf.invlists, writer)
    del writer
    trained.reset()
    return added


def merge(trained: Any, parts: list[Path], rows: int, path: Path) -> None:
    """Fill the trained index with the parts, in order, and write it; holds the index and one part.

    Raises: ArtifactError if the parts do not hold exactly `rows` keys.
    """
    ivf: Any = faiss.extract_index_ivf(trained)
    sizes = np.array([_sizes(_read_lists(part)) for part in parts]).sum(0)
    if sizes.sum() != rows:
        raise ArtifactError(f"The parts of the index hold {sizes.sum():,} of {rows:,} keys; remove {path.parent}.")
    for number, size in enumerate(sizes.tolist()):
        ivf.invlists.resize(number, size)
    filled = np.zeros(ivf.nlist, np.int64)
    for part in parts:
        filled += _copy_lists(_read_lists(part), ivf.invlists, filled)
    trained.ntotal = ivf.ntotal = rows
    faiss.write_index(trained, str(path))


def build_whole(trained: Any, keys: StoredKeys, path: Path) -> None:
    """Add all keys to an index that does not grow in parts, and write it."""
    for _, block in keys.each():
        trained.add(widened(block))
    faiss.write_index(trained, str(path))


def _read_lists(path: Path) -> Any:
    return faiss.read_InvertedLists(faiss.FileIOReader(str(path)))


def _sizes(lists: Any) -> np.ndarray:
    return np.array([lists.list_size(number) for number in range(lists.nlist)])


def _copy_lists(source: Any, target: Any, offsets: np.ndarray) -> np.ndarray:
    """Copy every list of `source` into `target` from its offset on; returns the sizes of the lists."""
    sizes = _sizes(source)
    for number in np.flatnonzero(sizes).tolist():
        ids, codes = source.get_ids(number), source.get_codes(number)
        target.update_entries(number, int(offsets[number]), int(sizes[number]), ids, codes)
    return sizes
