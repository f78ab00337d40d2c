"""Indexes of every kind compared with keys: those that they were made of, and those with one other key."""

import re
from pathlib import Path

import numpy as np
import pytest

from stages.search.automatic import resolve
from stages.search.build import build_whole, train
from stages.search.config import IndexConfig, Keys
from stages.search.keys import StoredKeys
from stages.search.open import read_index
from stages.search.quality import wrong_rows

ROWS, DIM = 400, 8
KINDS = {
    **{kind: {} for kind in ("flat", "hnsw", "IVF4,Flat", "IVF4,SQfp16", "IVF4,SQ8", "PCA4,IVF4,Flat")},
    "ivf-flat": {"lists": 4},
    "ivf-pq": {"lists": 4, "code_bits": 4, "code_bytes": 2},
    **{kind: {} for kind in ("SQ8", "PQ2x4", "PCA4,Flat", "HNSW8,SQ8")},
}


def numbers(wrong: str | None) -> list[int]:
    """Every number of what is wrong."""
    return [int(number) for number in re.findall(r"\d+", wrong or "")]


def made(tmp_path: Path, keys: np.ndarray, kind: str, metric: str = "l2") -> Path:
    settings = {"index": kind, "metric": metric, **KINDS.get(kind, {})}
    config = resolve(IndexConfig(**settings), Keys(*keys.shape, keys.dtype.name))
    train(config, StoredKeys(keys, 100), tmp_path / "trained")
    build_whole(read_index(tmp_path / "trained"), StoredKeys(keys, 100), tmp_path / "index.faiss")
    return tmp_path / "index.faiss"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_a_key_that_is_not_that_of_its_row_is_found(tmp_path: Path, kind: str, metric: str) -> None:
    keys = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float16)
    path = made(tmp_path, keys, kind, metric)
    assert wrong_rows(path, StoredKeys(keys, 100)) is None
    keys[[17, 333]] *= -1
    assert numbers(wrong_rows(path, StoredKeys(keys, 100))) == [2, 17]


@pytest.mark.parametrize("kind", ["ivf-pq", "IVF4,SQ8"])
def test_lists_so_long_that_their_numbers_take_memory_of_their_own_are_read(tmp_path: Path, kind: str) -> None:
    """NumPy keeps small arrays that nobody names, and gives those of a kilobyte and more back at once."""
    keys = np.random.default_rng(0).standard_normal((5000, DIM)).astype(np.float16)
    assert wrong_rows(made(tmp_path, keys, kind), StoredKeys(keys, 2000)) is None


@pytest.mark.parametrize("kind", ["IVF4,PQ2x4fs", "PQ2x4fs", "PQ2x4,RFlat", "IVF4,PQ2x4,RFlat", "LSH"])
def test_kinds_whose_codes_cannot_be_told_apart_are_not_accused(tmp_path: Path, kind: str) -> None:
    keys = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float16)
    assert wrong_rows(made(tmp_path, keys, kind), StoredKeys(keys, 100)) is None


@pytest.mark.parametrize("kind", ["flat", "hnsw", "SQ8", "LSH", "ivf-flat"])
@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_an_index_of_more_or_fewer_rows_is_found(tmp_path: Path, kind: str, rows: int) -> None:
    keys = np.random.default_rng(0).standard_normal((ROWS + 1, DIM)).astype(np.float32)
    path = made(tmp_path, keys[:ROWS], kind)
    assert numbers(wrong_rows(path, StoredKeys(keys[:rows], 100))) == [400, 400, rows]


def test_rows_that_are_missing_are_found_beyond_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.search.quality.SAMPLE_BYTES", 1)
    keys = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
    path = made(tmp_path, keys, "ivf-flat")
    assert wrong_rows(path, StoredKeys(keys, 100)) is None
    more = np.concatenate([keys, keys[:1]])
    assert numbers(wrong_rows(path, StoredKeys(more, 100))) == [400, 400, 401]
