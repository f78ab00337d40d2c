"""Rows that are read straight from files are those that Zarr gives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.rows import Rows, RowsByName

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=2).map(tuple)


def written(root: Path, shape: tuple[int, ...], dtype: Any, rows_per_shard: int) -> tuple[ArrayLayout, Any]:
    """An array of memlm's layout whose values all differ, and the same as Zarr opens it."""
    layout = ArrayLayout("all.zarr/test/array", shape, dtype, rows_per_shard)
    layout.create(root)
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for shard in range(layout.shards):
        layout.write(root, shard, values[layout.rows(shard)])
    group: Any = zarr.open_group(root / "all.zarr", mode="r")
    return layout, group["test/array"]


def refuse(*arguments: object) -> None:
    raise AssertionError("Zarr was asked")


@given(
    rows=st.integers(1, 12),
    more=SHAPES,
    dtype=st.sampled_from(["int64", "float32", "float16", "uint16"]),
    data=st.data(),
)
def test_rows_are_those_of_the_array(
    tmp_path_factory: pytest.TempPathFactory, rows: int, more: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("rows")
    _, array = written(root, (rows, *more), dtype, data.draw(st.integers(1, rows)))
    start, stop = data.draw(st.integers(0, rows)), data.draw(st.integers(0, rows + 2))

    found = Rows(array).read(start, stop)

    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array[start:stop])


def test_an_array_as_memlm_writes_it_is_read_without_zarr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    rows = Rows(array)
    monkeypatch.setattr(zarr.Array, "__getitem__", refuse)

    found = rows.read(3, 9)

    assert found.tolist() == [[3 * row, 3 * row + 1, 3 * row + 2] for row in range(3, 9)]
    found[:] = 0
    assert rows.read(3, 4).tolist() == [[9, 10, 11]], "rows are a copy"


def test_a_shard_that_was_never_written_is_zeros(tmp_path: Path) -> None:
    layout, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    (tmp_path / layout.shard_file(1)).unlink()

    assert Rows(array).read(3, 9).tolist() == [[9, 10, 11], *[[0, 0, 0]] * 4, [24, 25, 26]]


@pytest.mark.parametrize("kept", [17, 100])
def test_a_shard_that_is_cut_short_is_an_error_as_zarr_has_it(tmp_path: Path, kept: int) -> None:
    layout, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    file = tmp_path / layout.shard_file(0)
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(Exception) as wanted:
        array[0:2]
    with pytest.raises(wanted.type):
        Rows(array).read(0, 2)


def test_rows_stand_for_their_array_where_ranges_are_sliced(tmp_path: Path) -> None:
    _, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    rows = Rows(array)

    assert (rows.shape, rows.dtype, rows.shards) == ((10, 3), np.int64, (4, 3))
    np.testing.assert_array_equal(rows[7:], array[7:])
    with pytest.raises(ValueError):
        rows[::2]


def test_arrays_of_another_layout_are_left_to_zarr(tmp_path: Path) -> None:
    values = np.arange(30).reshape(10, 3)
    compressed = zarr.create_array(tmp_path / "a", data=values, chunks=(4, 3))
    columns = zarr.create_array(tmp_path / "b", data=values, chunks=(4, 1), shards=(4, 3), compressors=None)
    in_memory = zarr.create_array({}, data=values, chunks=(4, 3))

    for array in (compressed, columns, in_memory, values):
        np.testing.assert_array_equal(Rows(array).read(3, 9), values[3:9])


def test_the_arrays_of_a_group_are_opened_once(tmp_path: Path) -> None:
    written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    arrays = RowsByName(zarr.open_group(tmp_path / "all.zarr", mode="r"))

    assert arrays["test/array"] is arrays["test/array"]
    assert arrays["test/array"].read(9, 10).tolist() == [[27, 28, 29]]
    with pytest.raises(KeyError):
        arrays["valid/array"]
