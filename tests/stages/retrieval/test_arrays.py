"""Datastores and indexes over arrays: every kind of array, and refusals that name the row."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr

from stages.errors import UsageError
from stages.retrieval.arrays import LARGEST_LENGTH, Datastore, Index

ROWS, DIM, K = 60, 4, 3
RNG = np.random.default_rng(0)
KEYS = RNG.normal(size=(ROWS, DIM)).astype(np.float32)
VALUES = RNG.integers(0, 9, ROWS)
QUERIES = RNG.normal(size=(5, DIM)).astype(np.float32)


def found(keys: Any, values: Any = VALUES, queries: Any = QUERIES, **settings: Any) -> list:
    index = Index(Datastore(keys, values), "flat", **settings)
    return index.search(queries, K)[0].tolist()


def slow_nearest(keys: np.ndarray, queries: np.ndarray) -> list:
    rows = []
    for query in queries.astype(np.float64):
        distances = [float(((query - key) ** 2).sum()) for key in keys.astype(np.float64)]
        rows.append(sorted(range(len(keys)), key=distances.__getitem__)[:K])
    return rows


def changed(row: int, value: float) -> np.ndarray:
    keys = KEYS.copy()
    keys[row, 2] = value
    return keys


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_key_that_is_no_number_is_refused_with_its_row(value: float) -> None:
    """One such key made every answer -1."""
    with pytest.raises(UsageError, match=rf"keys: row 7 holds {value}, which is no finite number"):
        Datastore(changed(7, value), VALUES)
    with pytest.raises(UsageError, match="queries: row 1 holds"):
        found(KEYS, queries=changed(1, value)[:3])


def test_a_key_whose_square_is_beyond_float32_is_refused() -> None:
    with pytest.raises(UsageError, match="keys: row 7 is a vector whose squared length is beyond"):
        Datastore(changed(7, 1e25), VALUES)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("kind", ["flat", "ivf-flat", "hnsw"])
def test_the_longest_keys_are_still_found(kind: str, metric: str) -> None:
    units = KEYS / np.linalg.norm(KEYS, axis=1, keepdims=True)
    long = (units * math.sqrt(LARGEST_LENGTH) * 0.999).astype(np.float32)
    for queries in (long[:5], -long[:5]):
        ids, distances = Index(Datastore(long, VALUES), kind, metric).search(queries, K)
        assert ids.min() >= 0 and np.isfinite(distances).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integer_keys_are_refused_since_queries_would_be_cut(dtype: str) -> None:
    with pytest.raises(UsageError, match=rf"keys are floats, not {dtype}; convert them"):
        Datastore((KEYS * 10).astype(dtype), VALUES)


def test_integer_queries_are_searched_as_they_are() -> None:
    queries = (QUERIES * 10).astype(np.int64)
    assert found(KEYS, queries=queries) == slow_nearest(KEYS, queries)


def test_queries_beyond_the_type_of_the_keys_are_refused() -> None:
    with pytest.raises(UsageError, match="queries: row 2 holds a number beyond float16"):
        found(KEYS.astype(np.float16), queries=[[1] * DIM, [2] * DIM, [7e4] * DIM])


def read_only(keys: np.ndarray) -> np.ndarray:
    keys = keys.copy()
    keys.flags.writeable = False
    return keys


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    "form",
    [
        read_only,
        np.asfortranarray,
        lambda keys: keys[::-1].copy()[::-1],
        lambda keys: keys.astype(keys.dtype.newbyteorder(">")),
        lambda keys: keys.tolist(),
        torch.from_numpy,
        lambda keys: torch.from_numpy(keys).requires_grad_(),
        lambda keys: torch.from_numpy(keys.T.copy()).T,
    ],
)
def test_arrays_of_every_kind_give_the_same_rows(form: Callable, dtype: type) -> None:
    keys = KEYS.astype(dtype)
    assert found(form(keys), queries=QUERIES.astype(dtype)) == slow_nearest(
        keys, QUERIES.astype(dtype)
    )


def test_arrays_on_a_disk_are_searched_and_checked(tmp_path: Path) -> None:
    keys = zarr.create_array(
        store=tmp_path / "keys.zarr", shape=KEYS.shape, dtype=KEYS.dtype, chunks=(25, DIM)
    )
    keys[:] = KEYS
    values = zarr.create_array(
        store=tmp_path / "values.zarr", shape=VALUES.shape, dtype=VALUES.dtype, chunks=(25,)
    )
    values[:] = VALUES
    assert found(keys, values) == slow_nearest(KEYS, QUERIES)
    keys[33] = np.nan
    with pytest.raises(UsageError, match="keys: row 33 holds nan"):
        Datastore(keys, values)


def test_bfloat16_is_searched_without_loss() -> None:
    keys = torch.from_numpy(KEYS).bfloat16()
    queries = torch.from_numpy(QUERIES).bfloat16()
    assert Datastore(keys, VALUES).keys.dtype == np.float32
    wide = keys.float().numpy(), queries.float().numpy()
    assert found(keys, queries=queries) == slow_nearest(*wide)


def test_float64_is_rounded_once() -> None:
    keys = RNG.normal(size=(ROWS, DIM))
    assert found(keys) == slow_nearest(keys.astype(np.float32), QUERIES)
    with pytest.raises(UsageError, match="keys: row 3 holds inf"):
        Datastore(np.insert(keys, 3, 1e39, axis=0), np.append(VALUES, 0))


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        (KEYS[:0], VALUES[:0], "A datastore has a key at least"),
        (KEYS, VALUES[:-1], r"keys are \[rows, dim\] and values \[rows\], not"),
        (KEYS[0], VALUES[:1], r"keys are \[rows, dim\], not \[4\]"),
        (KEYS + 1j, VALUES, "keys are numbers"),
        (KEYS > 0, VALUES, "keys are numbers"),
        ([[1.0, 2.0], [3.0]], VALUES[:2], "keys are numbers"),
        (None, VALUES, "keys are numbers"),
        (KEYS, VALUES - 20, "values: row 0 holds -[0-9]+, and ids are from 0"),
        (KEYS, VALUES * 1.5, "values are whole numbers, ids of tokens, not float64"),
    ],
)
def test_rows_that_are_none_are_refused(keys: Any, values: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Datastore(keys, values)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([[0, 3]] * 4, r"exclude_ranges are whole numbers, \[5, 2\], not int64 \[4, 2\]"),
        (np.zeros((5, 2)), "exclude_ranges are whole numbers"),
        ([0, 3], r"exclude_ranges are \[n, 2\], not \[2\]"),
        ([[0, 3]] * 4 + [[3, 0]], "exclude_ranges: row 4 goes from 3 back to 0"),
    ],
)
def test_ranges_that_are_none_are_refused(ranges: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Index(Datastore(KEYS, VALUES)).search(QUERIES, K, ranges)


def test_ranges_may_be_tensors_and_lists() -> None:
    index = Index(Datastore(KEYS, VALUES))
    ranges = np.tile([[0, 40]], (5, 1))
    ids = index.search(QUERIES, K, ranges)[0].tolist()
    assert min(map(min, ids)) >= 40
    for form in (torch.from_numpy(ranges), ranges.tolist(), ranges.astype(np.int32)):
        assert index.search(QUERIES, K, form)[0].tolist() == ids


def test_no_queries_find_nothing() -> None:
    index = Index(Datastore(KEYS, VALUES))
    assert index.search(QUERIES[:0], K)[0].shape == (0, K)
    assert index.entries(QUERIES[:0], K).scores.shape == (0, K)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"index": "nonsense"}, "there is no index 'nonsense'; known: auto, exact, flat"),
        ({"metric": "cosine"}, "metric: input should be 'l2' or 'ip'"),
        ({"listss": 3}, "There is no setting 'listss'; did you mean 'lists'"),
        ({"keep": 0.5}, "keep is a setting of memlm build-index: leave it out here"),
        ({"index": "ivf-flat", "lists": 999}, "999 lists are more than the 60 keys"),
    ],
)
def test_settings_that_an_index_lacks_are_named(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Index(Datastore(KEYS, VALUES), **settings)
    with pytest.raises(UsageError, match=r"built of a memlm\.Datastore, not of ndarray"):
        Index(KEYS)  # type: ignore[arg-type]
