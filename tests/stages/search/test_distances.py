from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from stages.search.distances import (
    exact_distances,
    exact_order,
    pair_scores,
    search_with_candidates,
)
from stages.search.exact import ExactSearcher
from stages.search.keys import StoredKeys, take_values
from tests.oracles.search import nearest


class CountingArray:
    """A Zarr array that counts the slices taken of it."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype, self.chunks = (
            array,
            array.shape,
            array.dtype,
            array.chunks,
        )
        self.slices: list[tuple[int, int]] = []

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.slices.append((rows.start, rows.stop))
        return self.array[rows]


def stored(tmp_path: Path, keys: np.ndarray, rows: int) -> CountingArray:
    array = zarr.create_array(
        tmp_path / "keys",
        shape=keys.shape,
        dtype=keys.dtype,
        chunks=(rows, *keys.shape[1:]),
        compressors=None,
    )
    array[:] = keys
    return CountingArray(array)


@pytest.fixture
def keys() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((100, 7)).astype(np.float16)


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_equals_float64_sums_over_the_stored_keys(
    tmp_path: Path, keys: np.ndarray, metric: str
) -> None:
    random = np.random.default_rng(1)
    queries = random.standard_normal((9, 7)).astype(np.float32)
    ids = random.integers(-1, 100, (9, 13))
    got = exact_distances(StoredKeys(stored(tmp_path, keys, 8)), queries, ids, metric)
    wide, rows = queries.astype(np.float64)[:, None], keys.astype(np.float64)[ids]
    want = ((wide - rows) ** 2).sum(-1) if metric == "l2" else (wide * rows).sum(-1)
    want[ids < 0] = np.inf if metric == "l2" else -np.inf
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_pairs_of_queries_in_any_precision_are_scored() -> None:
    keys, pairs = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 1])
    want = pair_scores(keys[:2], pairs, keys, pairs + 1, "l2")
    np.testing.assert_array_equal(want, [27, 27, 27])
    np.testing.assert_array_equal(
        pair_scores(keys[:2].astype(np.float64), pairs, keys, pairs + 1, "l2"), want
    )


def test_half_precision_keys_are_widened_before_they_are_squared(tmp_path: Path) -> None:
    keys = np.full((3, 64), 200, np.float16)
    got = exact_distances(
        StoredKeys(stored(tmp_path, keys, 2)), np.zeros((1, 64), np.float32), np.array([[2]]), "l2"
    )
    assert got[0, 0] == 64 * 200**2  # beyond the largest float16


def test_each_shard_that_is_needed_is_read_once_and_whole(tmp_path: Path, keys: np.ndarray) -> None:
    array = stored(tmp_path, keys, 10)
    ids = np.array([[95, 3, 41], [3, 97, -1], [45, 9, 0]])
    exact_distances(StoredKeys(array), np.zeros((3, 7), np.float32), ids, "l2")
    assert array.slices == [(0, 10), (40, 50), (90, 100)]


def test_a_long_list_of_pairs_is_scored_in_pieces(
    tmp_path: Path, keys: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.random.default_rng(2).integers(0, 100, (20, 30))
    reader, queries = StoredKeys(stored(tmp_path, keys, 50)), keys[:20].astype(np.float32)
    whole = exact_distances(reader, queries, ids, "l2")
    monkeypatch.setattr("stages.search.distances.PAIR_ELEMENTS", 7 * 11)
    np.testing.assert_array_equal(exact_distances(reader, queries, ids, "l2"), whole)


def test_reordering_keeps_the_best_by_exact_distance(tmp_path: Path) -> None:
    keys = np.array([[0.0], [3], [1], [2], [1]], np.float32)
    ids, distances = exact_order(
        StoredKeys(stored(tmp_path, keys, 2)),
        np.zeros((1, 1), np.float32),
        np.array([[1, 4, 3, 2, -1]]),
        "l2",
        3,
    )
    np.testing.assert_array_equal(ids, [[2, 4, 3]])
    np.testing.assert_array_equal(distances, [[1, 1, 4]])


def test_shards_are_read_in_order_and_rows_as_asked(tmp_path: Path, keys: np.ndarray) -> None:
    reader = StoredKeys(stored(tmp_path, keys, 30))
    assert reader.shards == 4
    assert [(first, len(block)) for first, block in reader.each()] == [
        (0, 30),
        (30, 30),
        (60, 30),
        (90, 10),
    ]
    rows = np.array([99, 0, 31, 30, 0])
    np.testing.assert_array_equal(reader.take(rows), keys[rows].astype(np.float32))
    np.testing.assert_array_equal(reader.rows_between(25, 35), keys[25:35])


def test_values_are_gathered_by_shard(tmp_path: Path) -> None:
    values = np.arange(50, dtype=np.int32) * 3
    array = zarr.create_array(tmp_path / "values", shape=(50,), dtype=values.dtype, chunks=(8,))
    array[:] = values
    rows = np.array([49, 0, 7, 8, 49])
    np.testing.assert_array_equal(take_values(array, rows), values[rows])
    assert len(take_values(array, rows[:0])) == 0


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_candidates_are_ordered_by_the_stored_keys(
    tmp_path: Path, keys: np.ndarray, metric: str
) -> None:
    rough = ExactSearcher(StoredKeys(keys.round(), 100), metric)
    queries = keys[:9].astype(np.float32)
    forbidden = np.stack([np.arange(9), np.arange(9) + 2], axis=1)
    args = rough, StoredKeys(stored(tmp_path, keys, 8)), queries, 5
    exact, distances = search_with_candidates(*args, 100, forbidden)
    want_ids, want_distances = nearest(queries, keys.astype(np.float32), 5, metric, forbidden)
    np.testing.assert_array_equal(exact, want_ids)
    np.testing.assert_allclose(distances, want_distances, rtol=1e-5, atol=1e-6)
    found, of_index = search_with_candidates(*args, None, forbidden)
    want_found, want_of_index = rough.search(queries, 5, forbidden)
    np.testing.assert_array_equal(found, want_found)
    np.testing.assert_array_equal(of_index, want_of_index)
    assert (found != exact).any()
