"""How long an index takes to build, by building it of fewer keys. For forecasts alone: no artifact depends on it."""

import time
from pathlib import Path

from stages.search import build
from stages.search.config import IndexConfig
from stages.search.keys import StoredKeys
from stages.search.open import open_searcher, read_index
from stages.search.recall import measure

TRAIN_KEYS = 1 << 14
"""That lists and codes are learned from at least: comparing them with all lists takes the time, as with more keys."""


def with_few_keys(config: IndexConfig, rows: int) -> IndexConfig:
    """Resolved settings of an index that learns from so many keys at most, and as few as tell its speed."""
    if config.train_keys is None:
        return config
    return config.model_copy(update={"train_keys": min(rows, int(config.train_keys), _fewest(config))})


def _fewest(config: IndexConfig) -> int:
    return max(TRAIN_KEYS, int(config.lists or 0))


def build_seconds(config: IndexConfig, keys: StoredKeys, rows: int, part_bytes: int, folder: Path) -> float | None:
    """Seconds that an index of `rows` keys takes with resolved settings, its recall measured.

    Args:
        keys: of the index, or fewer that stand for them; as many as `part_bytes` hold are read.
        folder: for files that nobody needs afterwards.
    Returns: None where there are fewer keys than lists.
    """
    shards = max(1, part_bytes // (keys.rows_per_shard * keys.dim * keys.dtype.itemsize))
    block = keys.rows_between(0, min(keys.rows, shards * keys.rows_per_shard))
    some = StoredKeys(block, keys.rows_per_shard)
    if some.rows < int(config.lists or 0):
        return None
    quick = with_few_keys(config, some.rows)
    started = time.perf_counter()
    build.train(quick, some, folder / "trained.faiss")
    learning = time.perf_counter() - started
    if config.train_keys is not None:
        assert quick.train_keys is not None
        learning *= int(config.train_keys) / int(quick.train_keys)
    started = time.perf_counter()
    _fill(quick, some, folder)
    if config.recall_queries:
        searcher = open_searcher(folder / "index.faiss", quick.model_dump(), (some.rows, some.dim))
        measure(searcher, some, config.recall_queries, config.seed)
    return learning + (time.perf_counter() - started) * rows / some.rows


def _fill(config: IndexConfig, keys: StoredKeys, folder: Path) -> None:
    trained = read_index(folder / "trained.faiss")
    if not build.grows_in_parts(trained):
        build.build_whole(trained, keys, folder / "index.faiss")
        return
    build.write_part(trained, keys, range(keys.shards), folder / "part.lists")
    build.merge(trained, [build.PartFile(folder / "part.lists")], keys.rows, folder / "index.faiss")
