"""The time of an index by that of a smaller one: what grows with its keys, and what with those it learns from."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.search import build, build_speed
from stages.search.automatic import resolve
from stages.search.build_speed import build_seconds, with_few_keys
from stages.search.config import IndexConfig, Keys
from stages.search.keys import StoredKeys

ROWS = 6000


@pytest.fixture
def keys() -> StoredKeys:
    return StoredKeys(np.random.default_rng(0).standard_normal((600, 8)).astype("float16"), rows_per_shard=50)


def resolved(**settings: Any) -> IndexConfig:
    return resolve(IndexConfig(**settings), Keys(ROWS, 8, "float16"))


def seconds(
    monkeypatch: pytest.MonkeyPatch, folder: Path, config: IndexConfig, keys: StoredKeys, part_bytes: int = 1 << 20
) -> float | None:
    """Where to learn from a key takes 1 second, to add one 2, and to measure recall 100."""
    clock = [0.0]

    def train(quick: IndexConfig, some: StoredKeys, path: Path) -> None:
        clock[0] += quick.train_keys if isinstance(quick.train_keys, int) else 0
        taught(quick, some, path)

    def fill(quick: IndexConfig, some: StoredKeys, path: Path) -> None:
        clock[0] += 2 * some.rows
        filled(quick, some, path)

    def measure(*args: Any) -> None:
        clock[0] += 100
        measured(*args)

    taught, filled, measured = build.train, build_speed._fill, build_speed.measure
    monkeypatch.setattr(build_speed, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(build, "train", train)
    monkeypatch.setattr(build_speed, "_fill", fill)
    monkeypatch.setattr(build_speed, "measure", measure)
    return build_seconds(config, keys, ROWS, part_bytes, folder)


@pytest.mark.parametrize("index", ["ivf-flat", "ivf-pq", "flat", "hnsw"])
def test_what_grows_with_the_keys_and_what_with_those_that_teach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: StoredKeys, index: str
) -> None:
    config = resolved(index=index)
    learning = ROWS if index.startswith("ivf") else 0
    assert seconds(monkeypatch, tmp_path, config, keys) == learning + 2 * ROWS + 100 * ROWS / 600


def test_no_more_keys_are_read_than_a_part_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: StoredKeys
) -> None:
    config = resolved(index="flat", recall_queries=0)
    read: list[int] = []
    monkeypatch.setattr(keys, "rows_between", lambda first, stop: read.append(stop) or keys.array[first:stop])
    assert seconds(monkeypatch, tmp_path, config, keys, 50 * 16 * 3 + 1) == 2 * ROWS
    assert read == [150]


def test_fewer_keys_than_lists_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: StoredKeys) -> None:
    config = resolved(index="ivf-flat", lists=601)
    assert seconds(monkeypatch, tmp_path, config, keys) is None


def test_it_learns_from_as_few_keys_as_tell_its_speed() -> None:
    many = IndexConfig(index="ivf-flat", lists=64, probe=8, train_keys=10**6)
    assert with_few_keys(many, 10**7).train_keys == build_speed.TRAIN_KEYS
    assert with_few_keys(many.model_copy(update={"lists": 10**5}), 10**7).train_keys == 10**5
    assert with_few_keys(many, 300).train_keys == 300
    assert with_few_keys(resolved(index="flat"), 300) == resolved(index="flat")
